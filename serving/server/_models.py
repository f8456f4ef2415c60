"""Finds versions of models on disk, loads them, and swaps them while requests run."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from serving.api._printing import first_line
from serving.api._versions import Fingerprint, find_versions, fingerprint, why_no_version
from serving.client import serving_pb2
from serving.loaded._load import LoadedModel
from serving.loaded._status import Code, StatusError, invalid
from serving.server._calls import Metrics

_STOP_SECONDS = 5  # to wait for runs that were stopped
_MOST_LOADS = 4  # versions that load at once
_State = serving_pb2.ModelVersionStatus.State
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Version:
    """A version of a model. `error`: why loading failed; `refused`: fingerprint of what failed."""

    state: int
    error: StatusError | None = None
    refused: Fingerprint | None = None
    model: "LoadedModel | None" = None
    in_use: int = 0


@dataclass(eq=False)
class Model:
    """A served model; `config` is None after the model was removed from the configuration."""

    name: str
    config: Any
    versions: dict[int, _Version] = field(default_factory=dict)
    scanned: dict[int, Fingerprint] = field(default_factory=dict)  # of the last scan
    why_none: str = ""  # why the last scan found no versions
    scanning: threading.Lock = field(default_factory=threading.Lock)  # held during a scan

    def available(self) -> list[int]:
        """Return the numbers of the versions that answer requests."""
        return [n for n, version in self.versions.items() if version.state == _State.AVAILABLE]


class Models:
    """Serves the versions that the configuration asks for.

    The newest version that loads replaces an older version, which is closed after its last request.
    A version that failed is tried again when its files have changed. `load` returns the model in a
    version's directory, or raises StatusError.
    """

    def __init__(self, load: Callable[[Path], LoadedModel], metrics: Metrics):
        self._load = load
        self._metrics = metrics
        self._models: dict[str, Model] = {}
        self._lock = threading.Condition()  # notified when a version is closed
        self._loads = threading.Semaphore(_MOST_LOADS)
        self._is_closed = False

    def start(self, configs: Sequence[Any], stop: threading.Event) -> None:
        """Serve these models; return when each has a version, or when `stop` is set.

        The method waits for a model without versions on disk. Raises StatusError if the newest
        version of a model fails.
        """
        self.configure(configs)
        while not stop.is_set() and (
            waiting := [model for model in self._models.values() if not model.available()]
        ):
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

    def configure(self, configs: Sequence[Any], wait: bool = True) -> None:
        """Serve exactly these models from now on, and scan their base paths.

        Raises StatusError, and then changes nothing.
        """
        with self._lock:
            for config in configs:
                model = self._models.get(config.name)
                if model and model.config and model.config.base_path != config.base_path:
                    raise invalid(f"the base path of {config.name} changes while it is served")
            wanted = {config.name: config for config in configs}
            for model in self._models.values():  # one assignment each, since scans run concurrently
                model.config = wanted.pop(model.name, None)
            self._models |= {name: Model(name, config) for name, config in wanted.items()}
        self.scan(stable=False, wait=wait)

    def scan(self, stable: bool = True, wait: bool = True) -> None:
        """Scan every base path once; load and unload versions as the configuration says.

        Each model has its own thread, because a folder may be slow.

        Args:
            stable: whether a version loads only if it has not changed since the last scan, so that
                an unfinished copy is not read.
            wait: for the end of the scan. Otherwise, models that are being scanned are left out.
        """

        def update(model: Model) -> None:
            with model.scanning:
                if not self._is_closed:
                    self._update(model, stable)

        with self._lock:
            models = [each for each in self._models.values() if wait or not each.scanning.locked()]
        threads = [threading.Thread(target=update, args=(each,), daemon=True) for each in models]
        for thread in threads:
            thread.start()
        for thread in threads if wait else ():
            thread.join()

    def _update(self, model: Model, stable: bool) -> None:
        """Load and unload the versions of a model as its folder and the configuration say."""
        config, paths, why = model.config, dict[int, Path](), ""
        policy = config.model_version_policy if config else None
        pinned = {*policy.specific.versions} if policy else ()
        try:
            if config:
                paths = find_versions(Path(config.base_path))
                if not (paths and (not pinned or pinned & {*paths})):
                    why = why_no_version(Path(config.base_path), pinned)
        except OSError as error:
            why, paths = first_line(error), {number: Path() for number in model.available()}
        if why not in ("", model.why_none):
            _log.warning("No versions of %s: %s", model.name, why)
        model.why_none = why
        before, model.scanned = model.scanned if stable else None, {}
        limit = policy.latest.num_versions or 1 if policy else 0
        if pinned or (policy and policy.HasField("all")):
            limit = len(paths)
        serving: list[int] = []
        for number in sorted(pinned & {*paths} if pinned else paths, reverse=True):
            if len(serving) < limit and (
                number in model.available() or self._try(model, number, paths[number], before)
            ):
                serving.append(number)
        # An old version serves until a wanted version is available, or no version is left on disk.
        for number in model.available() if serving or not paths else ():
            if number not in serving:
                self._unload(model, number)
        with self._lock:
            for number in set(model.versions) - set(paths):
                if model.versions[number].state == _State.END:
                    del model.versions[number]

    def _try(
        self, model: Model, number: int, path: Path, before: Mapping[int, Fingerprint] | None
    ) -> bool:
        """Load a version if it is ready; return whether it was loaded.

        A version is ready if it did not fail with the same files, and has the fingerprint that the
        scan `before` found (None for any).
        """
        last, files = model.versions.get(number, _Version(_State.START)), None
        version = _Version(_State.LOADING)
        try:
            files = model.scanned[number] = fingerprint(path)
            if last.refused == files or (before is not None and before.get(number) != files):
                return False
            with self._lock:
                model.versions[number] = version
            with self._loads:
                loaded = self._load(path)
            with self._lock:
                if not self._is_closed:
                    version.model, version.state = loaded, _State.AVAILABLE
            if not version.model:
                loaded.close()
                return False
            _log.info("Loaded {name: %s version: %d}", model.name, number)
        except Exception as error:  # a damaged model may raise any class
            version.state, version.refused = _State.END, files
            known = error if isinstance(error, StatusError) else None
            version.error = known or StatusError(Code.UNKNOWN, str(error))
            with self._lock:
                model.versions[number] = version
            if str(error) != str(last.error):
                _log.error("Loading {name: %s version: %d} failed: %s", model.name, number, error)
        self._metrics.loaded.labels(model.name, number).set(int(version.error is None))
        return version.error is None

    def _unload(self, model: Model, number: int) -> None:
        """Take a version out of service; it is closed after its last request."""
        version = model.versions[number]
        with self._lock:
            if version.state != _State.AVAILABLE:  # another thread unloads it
                return
            version.state = _State.UNLOADING
        self._metrics.loaded.remove(model.name, number)
        _log.info("Unloading {name: %s version: %d}", model.name, number)
        self._close_if_idle(version)

    def _close_if_idle(self, version: _Version) -> None:
        with self._lock:
            if version.state != _State.UNLOADING or version.in_use:
                return
            version.state = _State.END
            model, version.model = version.model, None
            self._lock.notify_all()
        if model:
            model.close()

    def close(self, seconds: float) -> None:
        """Unload every version; stop the requests that still run after `seconds`."""
        with self._lock:
            self._is_closed, models = True, [*self._models.values()]
            versions = [version for model in models for version in model.versions.values()]
        for model in models:
            for number in model.available():
                self._unload(model, number)

        def are_closed() -> bool:
            return not any(version.model for version in versions)

        with self._lock:
            self._lock.wait_for(are_closed, seconds)
            running = [version.model for version in versions if version.model]
        for loaded in running:
            loaded.stop()
        with self._lock:
            self._lock.wait_for(are_closed, _STOP_SECONDS)
        for model in models:  # native code that loads must not see the end of the process
            model.scanning.acquire()

    def has(self, name: str) -> bool:
        """Return whether a model of that name is, or was, in the configuration."""
        return name in self._models

    @contextmanager
    def acquire(self, name: str, number: int | None = None) -> Iterator[tuple[int, LoadedModel]]:
        """Yield the number and the model of a version, by default the newest.

        The model stays loaded within the block.

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
            assert version.model  # because it is available
            version.in_use += 1
            loaded = version.model
        try:
            yield newest, loaded
        finally:
            with self._lock:
                version.in_use -= 1
            self._close_if_idle(version)

    def status(self, name: str, number: int | None = None) -> Message:
        """Return the GetModelStatusResponse of a version, or of all versions, newest first.

        Raises StatusError NOT_FOUND.
        """
        response = serving_pb2.GetModelStatusResponse()
        with self._lock:
            versions = self._models[name].versions if name in self._models else {}
            if not versions or number not in (None, *versions):
                which = "any versions" if number is None else f"version {number}"
                raise StatusError(Code.NOT_FOUND, f"Could not find {which} of model {name}")
            for each in sorted(versions, reverse=True) if number is None else [number]:
                version = versions[each]
                error = version.error or StatusError(Code.OK, "")
                status = response.model_version_status.add(version=each, state=version.state)
                status.status.error_code = error.code
                status.status.error_message = error.message
        return response
