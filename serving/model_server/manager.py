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

_STOP_SECONDS = 5  # for runs that were told to stop
State = get_model_status_pb2.ModelVersionStatus.State

log = logging.getLogger(__name__)


class Closable(Protocol):
    """What a version is served by; closed when the last request has left it."""

    def stop(self) -> None:
        """Have the runs under way fail soon."""

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
        on_change: told (model name, version, state) when a version is available, is being
            unloaded, or has failed (END).
    """

    def __init__(
        self,
        load: Callable[[str, int, Path], S],
        allow_labels_for_unavailable: bool = False,
        on_change: Callable[[str, int, int], None] = lambda name, number, state: None,
    ):
        self._on_change = on_change
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
        call of it, until it returns true. A configuration that is refused changes nothing.

        Raises StatusError where the configuration is invalid, a new model fails to load or has no
        version, or a label points at a version that is not available.
        """
        with self._scan_lock:
            check_model_list(config, [name for name in self._models if self._is_served(name)])
            with self._lock:
                self._check_labels(config)
                wanted = {model.name: model for model in config.config}
                before = dict(self._models)
                new = [name for name in wanted if not self._is_served(name)]
                # A version of a removed model may still be answering: it keeps its own entry.
                for name in new:
                    self._models[name] = _Model(wanted[name])
            try:
                self._load_new(new, wanted, wait)
            except BaseException:
                self._put_back(new, before)
                raise
            with self._lock:
                for name, model in self._models.items():
                    if name in wanted:
                        model.config = wanted[name]
                        model.labels = dict(wanted[name].version_labels)
                    else:
                        model.removed, model.labels = True, {}
            self.scan(at_once=new)

    def _load_new(
        self,
        new: Collection[str],
        wanted: Mapping[str, model_server_config_pb2.ModelConfig],
        wait: Callable[[], bool] | None,
    ) -> None:
        """Load the new models of a configuration, beside those that are there."""
        self.scan(at_once=new, names=new)
        while wait and any(not self._models[name].versions for name in new):
            if wait():
                return
            self.scan(at_once=new, names=new)
        failed = [self._why_not_available(name) for name in new if not self._is_served(name)]
        if failed:
            raise StatusError(
                Code.UNKNOWN,
                f"{len(failed)} servable(s) did not become available: {{{', '.join(failed)}}}",
            )
        for name in new:
            with self._lock:
                self._check_available(self._models[name], name, wanted[name].version_labels)

    def _put_back(self, new: Collection[str], before: Mapping[str, _Model[S]]) -> None:
        """Take away the new models of a configuration that failed."""
        with self._lock:
            gone = {name: self._models[name] for name in new}
            for name in new:
                del self._models[name]
                if name in before:
                    self._models[name] = before[name]
        for name, model in gone.items():
            for number in model.available():
                self._unload_version(name, model, number)

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

    def scan(self, at_once: Collection[str] = (), names: Collection[str] | None = None) -> None:
        """Look at every base path once; load and unload what the configuration asks for.

        A version is loaded only when its files are as the previous scan saw them, so that one that
        is being copied is left alone; those of the models `at_once` without waiting for that.
        `names` limits the look to some models.
        """
        with self._scan_lock:
            with self._lock:
                models = dict(self._models)
            for name, model in models.items():
                if names is not None and name not in names:
                    continue
                try:
                    self._scan_model(name, model, settle=name not in at_once)
                except Exception:  # one model's trouble is not the others'
                    log.exception("Looking for versions of %s failed", name)

    def _scan_model(self, name: str, model: _Model[S], settle: bool) -> None:
        present = {} if model.removed else self._present(name, model)
        if present is None:
            return
        prints: dict[int, storage.Fingerprint] = {}
        ready = []
        for number, path in present.items():
            try:
                if self._is_ready(name, model, number, path, settle, prints):
                    ready.append(number)
            except OSError as error:
                if number in model.available():
                    ready.append(number)
                else:
                    self._fail_version(name, model, number, error)
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

    def _present(self, name: str, model: _Model[S]) -> dict[int, Path] | None:
        """Version directories; None where the base path, which was there, cannot be read."""
        base_path = Path(model.config.base_path)
        try:
            found = storage.read_versions(base_path)
        except OSError as error:
            if model.available():
                if not model.found_empty:
                    log.error(
                        "Base path %s of %s cannot be read, its versions stay: %s",
                        *(base_path, name, error),
                    )
                model.found_empty = True
                return None
            return {}
        return found

    def _is_ready(
        self,
        name: str,
        model: _Model[S],
        number: int,
        path: Path,
        settle: bool,
        prints: dict[int, storage.Fingerprint],
    ) -> bool:
        """Whether a version on disk is loaded, or can be; its fingerprint goes into `prints`."""
        files = prints[number] = storage.fingerprint(path)
        known = model.versions.get(number)
        if known and known.state == State.AVAILABLE:
            return True
        if known and known.error and known.fingerprint == files:
            return False
        if settle and model.unsettled.get(number) != files:
            log.info("Version %d of %s is new or changing: looking again", number, name)
            return False
        if model.incomplete.get(number) == files:
            return False
        if missing := storage.missing_part(path):
            log.warning("Version %d of %s is not complete: no %s", number, name, missing)
            model.incomplete[number] = files
            return False
        return True

    def _fail_version(self, name: str, model: _Model[S], number: int, error: OSError) -> None:
        """A version whose files cannot be read: that shows in its state."""
        known = model.versions.get(number)
        if known and str(known.error) == str(error):
            return
        log.error("Reading {name: %s version: %d} failed: %s", name, number, error)
        failed = StatusError(Code.UNKNOWN, str(error))
        with self._lock:
            model.versions[number] = _Version(number, (), State.END, failed)
        self._on_change(name, number, State.END)

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
            self._on_change(name, number, State.END)
            return
        with self._lock:
            version.servable, version.state = servable, State.AVAILABLE
        self._on_change(name, number, State.AVAILABLE)
        took = time.monotonic() - started
        log.info("Loaded servable version {name: %s version: %d} in %.2f s", name, number, took)

    def _unload_version(self, name: str, model: _Model[S], number: int) -> None:
        with self._lock:
            version = model.versions[number]
            version.state = State.UNLOADING
        self._on_change(name, number, State.UNLOADING)
        log.info("Unloading servable version {name: %s version: %d}", name, number)
        self._close_if_idle(version)

    def _close_if_idle(self, version: _Version[S]) -> None:
        with self._lock:
            if version.state != State.UNLOADING or version.in_use:
                return
            version.state = State.END
            servable, version.servable = version.servable, None
        if servable is not None:
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

    def knows(self, name: str) -> bool:
        """Whether a model of that name is, or was, in the configuration."""
        return name in self._models

    @contextmanager
    def acquire(self, spec: model_pb2.ModelSpec) -> Iterator[S]:
        """The servable for a request, kept loaded until the block is left.

        Raises StatusError: INVALID_ARGUMENT without a name or with an unknown label, NOT_FOUND
        where no such version is available.
        """
        with self._lock:
            version = self._find(spec)
            servable = version.servable
            assert servable is not None  # what is available is loaded
            version.in_use += 1
        try:
            yield servable
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
        if model and available and wanted is None:
            return model.versions[max(available)]
        if model and wanted is not None and wanted in available:
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

    def close(self, seconds: float | None = None) -> None:
        """Stop polling and unload every version.

        Requests under way end first; after `seconds` they are stopped.
        """
        self._stopped.set()
        if self._poller:
            self._poller.join(seconds)
        for name, model in self._models.items():
            for number in model.available():
                self._unload_version(name, model, number)
        left = [v for m in self._models.values() for v in m.versions.values() if v.servable]
        deadline = None if seconds is None else time.monotonic() + seconds
        for stopping in (False, True):
            while any(version.servable for version in left):
                if deadline is not None and time.monotonic() > deadline:
                    break
                time.sleep(0.01)
            if not stopping:
                for version in left:
                    if servable := version.servable:
                        servable.stop()
                deadline = time.monotonic() + _STOP_SECONDS


def _status(version: _Version) -> get_model_status_pb2.ModelVersionStatus:
    proto = get_model_status_pb2.ModelVersionStatus(version=version.number, state=version.state)
    proto.status.error_code = version.error.code if version.error else Code.OK
    proto.status.error_message = version.error.message if version.error else ""
    return proto
