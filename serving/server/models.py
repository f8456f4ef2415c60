"""The served models: their versions on disk are loaded, swapped and unloaded while requests run."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from serving.client import serving_pb2
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.calls import Metrics
from serving.server.versions import Fingerprint, find_versions, fingerprint

if TYPE_CHECKING:
    from serving.server.versions import LoadedModel

_STOP_SECONDS = 5  # for runs that were told to stop
State = serving_pb2.ModelVersionStatus.State

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Version:
    """A version of a model.

    Attributes:
        error: why it failed.
        refused: its files when it failed.
        model: what answers, while it is loaded.
        in_use: the number of its running requests.
    """

    state: int
    error: Exception | None = None
    refused: Fingerprint | None = None
    model: "LoadedModel | None" = None
    in_use: int = 0

    def status(self, number: int) -> Message:
        """Its part of a GetModelStatusResponse."""
        proto = serving_pb2.ModelVersionStatus(version=number, state=self.state)
        error = self.error or StatusError(Code.OK, "")
        proto.status.error_code = getattr(error, "code", Code.UNKNOWN)
        proto.status.error_message = str(error)
        return proto


@dataclass(eq=False)
class Model:
    """A model of the configuration, or without a `config` one that was taken out.

    `scanned` are the files of new versions in the last scan.
    """

    name: str
    config: Any
    versions: dict[int, Version] = field(default_factory=dict)
    scanned: dict[int, Fingerprint] = field(default_factory=dict)

    def available(self) -> list[int]:
        """The numbers of the versions that answer requests."""
        return [n for n, version in self.versions.items() if version.state == State.AVAILABLE]


class Models:
    """Serves the versions that the configuration names.

    The newest version that can be loaded replaces an older one, which is closed after its last
    request. A failed version is tried again when its files have changed.

    Args:
        load: loads a version's directory; raises StatusError.
        metrics: records which versions are loaded.
    """

    def __init__(self, load: Callable[[Path], "LoadedModel"], metrics: Metrics):
        self._load = load
        self._metrics = metrics
        self._models: dict[str, Model] = {}
        self._lock = threading.Condition()  # notified when a version is closed
        self._scan_lock = threading.Lock()

    # Loading

    def start(self, configs: Sequence[Any], stop: threading.Event) -> None:
        """Serve these models; return when each has a version, or when `stop` is set.

        A model without a version is waited for. Raises StatusError for a model whose versions fail.
        """
        self.configure(configs)
        while not stop.is_set():
            waiting = [model for model in self._models.values() if not model.available()]
            if not waiting:
                return
            errors = [
                f"{{name: {model.name} version: {number}}} due to error: {version.error}"
                for model in waiting
                for number, version in sorted(model.versions.items())[-1:]
            ]
            if errors:
                message = f"{len(errors)} servable(s) did not become available: "
                raise StatusError(Code.UNKNOWN, f"{message}{{{', '.join(errors)}}}")
            stop.wait(1)
            self.scan()

    def configure(self, configs: Sequence[Any]) -> None:
        """Serve exactly these models from now on. Raises StatusError, and then changes nothing."""
        with self._lock:
            for config in configs:
                model = self._models.get(config.name)
                if model and model.config and model.config.base_path != config.base_path:
                    raise invalid(f"the base path of {config.name} changes while it is served")
            for model in self._models.values():
                model.config = None
            for config in configs:
                self._models.setdefault(config.name, Model(config.name, config)).config = config
        self.scan(stable=False)

    def scan(self, stable: bool = True) -> None:
        """Look at every base path once; load and unload versions as the configuration says.

        Args:
            stable: whether a version must be unchanged since the last scan, so that a copy under
                way is not read.
        """
        with self._scan_lock:
            for model in list(self._models.values()):
                self._scan_model(model, stable)

    def _scan_model(self, model: Model, stable: bool) -> None:
        try:
            paths = find_versions(Path(model.config.base_path)) if model.config else {}
        except OSError as error:
            if model.available():
                log.error("The versions of %s stay: %s", model.name, error)
                return
            paths = {}
        if model.config and not paths and not model.versions:
            log.warning("No versions of %s in %s", model.name, model.config.base_path)
        before, model.scanned = model.scanned, {}
        serving: list[int] = []
        limit = model.config.model_version_policy.latest.num_versions or 1 if model.config else 0
        for number in sorted(paths, reverse=True):
            if len(serving) < limit and (
                number in model.available()
                or self._try(model, number, paths[number], before if stable else None)
            ):
                serving.append(number)
        # An old version serves until a wanted one is available, or the disk has none.
        if serving or not paths:
            for number in model.available():
                if number not in serving:
                    self._unload(model, number)
        with self._lock:
            for number in set(model.versions) - set(paths):
                if model.versions[number].state == State.END:
                    del model.versions[number]

    def _try(
        self, model: Model, number: int, path: Path, before: Mapping[int, Fingerprint] | None
    ) -> bool:
        """Load a version if it is ready; return whether it was loaded.

        It is ready where it did not fail with these very files, and has not changed since the scan
        `before`.
        """
        last, files = model.versions.get(number, Version(State.START)), None
        version = Version(State.LOADING)
        try:
            files = model.scanned[number] = fingerprint(path)
            if last.refused == files or (before is not None and before.get(number) != files):
                return False
            with self._lock:
                model.versions[number] = version
            version.model, version.state = self._load(path), State.AVAILABLE
            log.info("Loaded {name: %s version: %d}", model.name, number)
        except Exception as error:  # a damaged model may end in any of them
            version.state, version.refused, version.error = State.END, files, error
            with self._lock:
                model.versions[number] = version
            if str(error) != str(last.error):
                log.error("Loading {name: %s version: %d} failed: %s", model.name, number, error)
        self._metrics.loaded.labels(model.name, number).set(int(version.error is None))
        return version.error is None

    def _unload(self, model: Model, number: int) -> None:
        version = model.versions[number]
        with self._lock:
            version.state = State.UNLOADING
        self._metrics.loaded.remove(model.name, number)
        log.info("Unloading {name: %s version: %d}", model.name, number)
        self._close_if_idle(version)

    def _close_if_idle(self, version: Version) -> None:
        with self._lock:
            if version.state != State.UNLOADING or version.in_use:
                return
            version.state = State.END
            model, version.model = version.model, None
            self._lock.notify_all()
        if model:
            model.close()

    def close(self, seconds: float) -> None:
        """Unload every version; requests under way are stopped after `seconds`."""
        with self._scan_lock:
            versions = [v for model in self._models.values() for v in model.versions.values()]
            for model in self._models.values():
                for number in model.available():
                    self._unload(model, number)

        def are_closed() -> bool:
            return not any(version.model for version in versions)

        with self._lock:
            if self._lock.wait_for(are_closed, seconds):
                return
            running = [version.model for version in versions if version.model]
        for loaded in running:
            loaded.stop()
        with self._lock:
            self._lock.wait_for(are_closed, _STOP_SECONDS)

    # Requests

    def has(self, name: str) -> bool:
        """Whether a model of that name is, or was, in the configuration."""
        return name in self._models

    @contextmanager
    def acquire(self, name: str, number: int | None = None) -> Iterator[tuple[int, "LoadedModel"]]:
        """A version, or the newest: its number and its model, which stays loaded in the block.

        Raises StatusError: INVALID_ARGUMENT without a name, NOT_FOUND if the version is not
        available.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        with self._lock:
            model = self._models.get(name)
            available = model.available() if model else []
            newest = max(available, default=None) if number is None else number
            if not model or newest not in available:
                which = f"Latest({name})" if number is None else f"Specific({name}, {number})"
                raise StatusError(Code.NOT_FOUND, f"Servable not found for request: {which}")
            version = model.versions[newest]
            assert version.model  # it is available
            version.in_use += 1
            loaded = version.model
        try:
            yield newest, loaded
        finally:
            with self._lock:
                version.in_use -= 1
            self._close_if_idle(version)

    def status(self, name: str, number: int | None = None) -> Message:
        """The GetModelStatusResponse of a version, or of all, newest first.

        Raises StatusError NOT_FOUND.
        """
        with self._lock:
            model = self._models.get(name)
            versions = dict(model.versions) if model else {}
            if not versions or number not in (None, *versions):
                which = "any versions" if number is None else f"version {number}"
                raise StatusError(Code.NOT_FOUND, f"Could not find {which} of model {name}")
            numbers = sorted(versions, reverse=True) if number is None else [number]
            return serving_pb2.GetModelStatusResponse(
                model_version_status=[versions[each].status(each) for each in numbers]
            )
