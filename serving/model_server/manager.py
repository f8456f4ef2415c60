"""Which versions of which models are served: loading, hot swap, labels and states."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tensorflow_serving.apis import get_model_status_pb2, model_pb2
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server import storage
from serving.model_server.model_list import aspired_versions, check_model_list
from serving.status import Code, StatusError

State = get_model_status_pb2.ModelVersionStatus.State

log = logging.getLogger(__name__)


class Closable(Protocol):
    """What a version is served by; closed when the last request has left it."""

    def close(self) -> None:
        """Free the resources."""


S = TypeVar("S", bound=Closable)


@dataclass
class _Version(Generic[S]):
    number: int
    fingerprint: storage.Fingerprint
    state: int = State.START
    error: StatusError | None = None
    servable: S | None = None
    in_use: int = 0


@dataclass
class _Model(Generic[S]):
    config: model_server_config_pb2.ModelConfig
    versions: dict[int, _Version[S]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    unsettled: dict[int, storage.Fingerprint] = field(default_factory=dict)
    incomplete: dict[int, storage.Fingerprint] = field(default_factory=dict)
    removed: bool = False
    found_empty: bool = False

    def available(self) -> list[int]:
        return [n for n, version in self.versions.items() if version.state == State.AVAILABLE]


class ModelManager(Generic[S]):
    """Serves the versions that the configuration asks for.

    A version is loaded before the one that it replaces is unloaded, and an unloaded version is
    closed when its last request has left. A version that fails to load, and one that is
    half-copied, is tried again when its files have changed.

    Args:
        load: makes the servable of (model name, version, directory); raises StatusError.
        allow_labels_for_unavailable: accept a new label on a version that is not available yet.
    """

    def __init__(
        self, load: Callable[[str, int, Path], S], allow_labels_for_unavailable: bool = False
    ):
        self._load = load
        self._allow_labels = allow_labels_for_unavailable
        self._models: dict[str, _Model[S]] = {}
        self._lock = threading.Lock()
        self._scan_lock = threading.RLock()
        self._stopped = threading.Event()
        self._poller: threading.Thread | None = None

    # Configuration

    def configure(
        self,
        config: model_server_config_pb2.ModelConfigList,
        wait: Callable[[], bool] | None = None,
    ) -> None:
        """Serve exactly the models of `config`; returns when the new ones are available.

        A new model without any version is an error, or with `wait` is looked for again after each
        call of it, until it returns true.

        Raises StatusError where the configuration is invalid, a new model fails to load or has no
        version, or a label points at a version that is not available.
        """
        with self._scan_lock:
            check_model_list(config, [name for name in self._models if self._is_served(name)])
            with self._lock:
                self._check_labels(config)
                wanted = {model.name: model for model in config.config}
                new = [name for name in wanted if not self._is_served(name)]
                for name, model_config in wanted.items():
                    model = self._models.setdefault(name, _Model(model_config))
                    model.config, model.removed = model_config, False
                    if name not in new:
                        model.labels = dict(model_config.version_labels)
                for name, model in self._models.items():
                    if name not in wanted:
                        model.removed = True
                        model.labels = {}
            self.scan(at_once=new)
            while wait and any(not self._models[name].versions for name in new):
                if wait():
                    return
                self.scan(at_once=new)
            failed = [self._why_not_available(name) for name in new if not self._is_served(name)]
            if failed:
                raise StatusError(
                    Code.UNKNOWN,
                    f"{len(failed)} servable(s) did not become available: {{{', '.join(failed)}}}",
                )
            with self._lock:
                for name in new:
                    labels = wanted[name].version_labels
                    self._check_available(self._models[name], name, labels)
                    self._models[name].labels = dict(labels)

    def _check_labels(self, config: model_server_config_pb2.ModelConfigList) -> None:
        for model in config.config:
            if self._is_served(model.name):
                self._check_available(self._models[model.name], model.name, model.version_labels)

    def _check_available(self, model: _Model[S], name: str, labels: Mapping[str, int]) -> None:
        """A label points at a version that is available; new ones may wait for it if allowed."""
        available = model.available()
        for label, number in labels.items():
            moved = model.labels.get(label, number) != number
            if number not in available and (moved or not self._allow_labels):
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    f"Request to assign label to version {number} of model {name}, which is not "
                    "currently available for inference",
                )

    # Versions

    def scan(self, at_once: Collection[str] = ()) -> None:
        """Look at every base path once; load and unload what the configuration asks for.

        A version is loaded only when its files are as the previous scan saw them, so that one that
        is being copied is left alone; those of the models `at_once` without waiting for that.
        """
        with self._scan_lock:
            with self._lock:
                models = dict(self._models)
            for name, model in models.items():
                self._scan_model(name, model, settle=name not in at_once)

    def _scan_model(self, name: str, model: _Model[S], settle: bool) -> None:
        present = {} if model.removed else storage.list_versions(Path(model.config.base_path))
        prints = {number: storage.fingerprint(path) for number, path in present.items()}
        ready = []
        for number, path in present.items():
            known = model.versions.get(number)
            if known and known.state == State.AVAILABLE:
                ready.append(number)
            elif known and known.error and known.fingerprint == prints[number]:
                continue
            elif settle and model.unsettled.get(number) != prints[number]:
                log.info("Version %d of %s is new or changing: looking again", number, name)
            elif model.incomplete.get(number) == prints[number]:
                continue
            elif missing := storage.missing_part(path):
                log.warning("Version %d of %s is not complete: no %s", number, name, missing)
                model.incomplete[number] = prints[number]
            else:
                ready.append(number)
        model.unsettled = prints
        if not (present or model.removed or model.found_empty):
            log.warning(
                "No versions of servable %s found under base path %s. Did you forget to name your "
                "leaf directory as a number (eg. '/1/')?",
                name,
                model.config.base_path,
            )
        model.found_empty = not present
        aspired = aspired_versions(model.config.model_version_policy, ready)
        for number in aspired:
            if number not in model.available():
                self._load_version(name, model, number, present[number], prints[number])
        # The old version serves until a wanted one is available, or all are gone from the disk.
        if any(number in model.available() for number in aspired) or not present:
            for number in model.available():
                if number not in aspired:
                    self._unload_version(name, model, number)

    def _load_version(
        self, name: str, model: _Model[S], number: int, path: Path, files: storage.Fingerprint
    ) -> None:
        version = _Version[S](number, files, State.LOADING)
        with self._lock:
            model.versions[number] = version
        started = time.monotonic()
        try:
            servable = self._load(name, number, path)
        except Exception as error:
            log.error("Loading {name: %s version: %d} failed: %s", name, number, error)
            if not isinstance(error, StatusError):
                error = StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}")
            with self._lock:
                version.state, version.error = State.END, error
            return
        with self._lock:
            version.servable, version.state = servable, State.AVAILABLE
        took = time.monotonic() - started
        log.info("Loaded servable version {name: %s version: %d} in %.2f s", name, number, took)

    def _unload_version(self, name: str, model: _Model[S], number: int) -> None:
        with self._lock:
            version = model.versions[number]
            version.state = State.UNLOADING
        log.info("Unloading servable version {name: %s version: %d}", name, number)
        self._close_if_idle(version)

    def _close_if_idle(self, version: _Version[S]) -> None:
        with self._lock:
            if version.state != State.UNLOADING or version.in_use:
                return
            version.state = State.END
            servable, version.servable = version.servable, None
        servable.close()

    def _is_served(self, name: str) -> bool:
        model = self._models.get(name)
        return bool(model and not model.removed and model.available())

    def _why_not_available(self, name: str) -> str:
        errors = [
            f"{{name: {name} version: {number}}} due to error: {version.error}"
            for number, version in sorted(self._models[name].versions.items())
            if version.error
        ]
        path = self._models[name].config.base_path
        return errors[-1] if errors else f"{{name: {name}}}: no version in {path}"

    # Requests

    @contextmanager
    def acquire(self, spec: model_pb2.ModelSpec) -> Iterator[S]:
        """The servable for a request, kept loaded until the block is left.

        Raises StatusError: INVALID_ARGUMENT without a name or with an unknown label, NOT_FOUND
        where no such version is available.
        """
        with self._lock:
            version = self._find(spec)
            version.in_use += 1
        try:
            yield version.servable
        finally:
            with self._lock:
                version.in_use -= 1
            self._close_if_idle(version)

    def _find(self, spec: model_pb2.ModelSpec) -> _Version[S]:
        if not spec.name:
            raise StatusError(Code.INVALID_ARGUMENT, "ModelSpec has no name specified.")
        model = self._models.get(spec.name)
        choice = spec.WhichOneof("version_choice")
        wanted: int | None = None
        if choice == "version":
            wanted = spec.version.value
        elif choice == "version_label":
            wanted = model.labels.get(spec.version_label) if model else None
            if wanted is None:
                raise StatusError(
                    Code.INVALID_ARGUMENT,
                    f"Unrecognized servable version label: {spec.version_label}",
                )
        available = model.available() if model else []
        if wanted is None and available:
            return model.versions[max(available)]
        if wanted in available:
            return model.versions[wanted]
        request = f"Latest({spec.name})" if wanted is None else f"Specific({spec.name}, {wanted})"
        raise StatusError(Code.NOT_FOUND, f"Servable not found for request: {request}")

    def status(self, spec: model_pb2.ModelSpec) -> list[get_model_status_pb2.ModelVersionStatus]:
        """State of the versions that `spec` names, newest first.

        Raises StatusError as `acquire` does; NOT_FOUND where there is no such version.
        """
        with self._lock:
            model = self._models.get(spec.name)
            versions = dict(model.versions) if model else {}
            choice = spec.WhichOneof("version_choice")
            if choice == "version_label":
                versions = {v.number: v for v in [self._find(spec)]}
            elif choice == "version":
                number = spec.version.value
                if number not in versions:
                    raise StatusError(
                        Code.NOT_FOUND, f"Could not find version {number} of model {spec.name}"
                    )
                versions = {number: versions[number]}
            if not versions:
                raise StatusError(
                    Code.NOT_FOUND, f"Could not find any versions of model {spec.name}"
                )
            return [_status(versions[number]) for number in sorted(versions, reverse=True)]

    # Life

    def start_polling(self, seconds: float) -> None:
        """Scan every `seconds` seconds in the background until `close`."""

        def poll() -> None:
            while not self._stopped.wait(seconds):
                try:
                    self.scan()
                except Exception:
                    log.exception("Polling the file system failed")

        self._poller = threading.Thread(target=poll, name="file-system-poll", daemon=True)
        self._poller.start()

    def close(self) -> None:
        """Stop polling and unload every version; requests under way end first."""
        self._stopped.set()
        if self._poller:
            self._poller.join()
        for name, model in self._models.items():
            for number in model.available():
                self._unload_version(name, model, number)


def _status(version: _Version) -> get_model_status_pb2.ModelVersionStatus:
    proto = get_model_status_pb2.ModelVersionStatus(version=version.number, state=version.state)
    proto.status.error_code = version.error.code if version.error else Code.OK
    proto.status.error_message = version.error.message if version.error else ""
    return proto
