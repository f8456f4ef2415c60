"""The served models and versions: loading, hot swap, labels and states."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import Message

from serving.savedmodel.status import Code, StatusError
from serving.server.base_path import Found
from serving.server.model_list import aspired_versions, check_model_list
from serving.server.models import Model, State, Version, find_version, read_status
from serving.server.servable import Servable
from serving.server.storage import Fingerprint

_STOP_SECONDS = 5  # for runs that were told to stop

log = logging.getLogger(__name__)


class ModelManager:
    """Serves the versions that the configuration asks for.

    A version is loaded before its predecessor is unloaded. An unloaded version is closed after its
    last request. A failed or half-copied version is tried again when its files have changed.

    Args:
        load: makes the servable of (model name, version, directory); raises StatusError.
        allow_labels_for_unavailable: accept a new label on a version that is not available yet.
        on_change: called with (model name, version, state) when a version becomes available, is
            unloaded, or fails (END).
    """

    def __init__(
        self,
        load: Callable[[str, int, Path], Servable],
        allow_labels_for_unavailable: bool = False,
        on_change: Callable[[str, int, int], None] = lambda name, number, state: None,
    ):
        self._on_change = on_change
        self._load = load
        self._allow_labels = allow_labels_for_unavailable
        self._models: dict[str, Model] = {}
        self._lock = threading.Lock()
        self._scan_lock = threading.RLock()
        self._stopped = threading.Event()
        self._poller: threading.Thread | None = None

    # Configuration

    def configure(
        self,
        config: Message,
        wait: Callable[[], bool] | None = None,
    ) -> None:
        """Serve exactly the models of `config`. Return when the new ones are available.

        A new model without a version is an error. With `wait` the scan is repeated after each call
        of it, until it returns true. A refused configuration changes nothing.

        Raises StatusError for an invalid configuration, a new model that fails to load or has no
        version, and a label on a version that is not available.
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
                    self._models[name] = Model(wanted[name])
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
        wanted: Mapping[str, Message],
        wait: Callable[[], bool] | None,
    ) -> None:
        """Load the new models of a configuration beside the present ones."""
        self.scan(at_once=new, names=new)
        while wait and any(not self._models[name].versions for name in new):
            if wait():
                return
            self.scan(at_once=new, names=new)
        failed = [
            self._models[name].why_not_available() for name in new if not self._is_served(name)
        ]
        if failed:
            raise StatusError(
                Code.UNKNOWN,
                f"{len(failed)} servable(s) did not become available: {{{', '.join(failed)}}}",
            )
        for name in new:
            with self._lock:
                self._check_available(self._models[name], name, wanted[name].version_labels)

    def _put_back(self, new: Collection[str], before: Mapping[str, Model]) -> None:
        """Remove the new models of a configuration that failed."""
        with self._lock:
            gone = {name: self._models[name] for name in new}
            for name in new:
                del self._models[name]
                if name in before:
                    self._models[name] = before[name]
        for name, model in gone.items():
            for number in model.available():
                self._unload_version(name, model, number)

    def _check_labels(self, config: Message) -> None:
        for model in config.config:
            if self._is_served(model.name):
                self._check_available(self._models[model.name], model.name, model.version_labels)

    def _check_available(self, model: Model, name: str, labels: Mapping[str, int]) -> None:
        """Check that labels point at available versions; new labels may wait if that is allowed."""
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
        """Scan every base path once; load and unload versions as the configuration asks.

        A version is loaded when its files are unchanged since the last scan, so that a copy under
        way is left alone. Models in `at_once` skip that. `names` limits the scan to some models.
        """
        with self._scan_lock:
            with self._lock:
                models = dict(self._models)
            for name, model in models.items():
                if names is not None and name not in names:
                    continue
                try:
                    self._scan_model(name, model, settle=name not in at_once)
                except Exception:  # an error of one model must not stop the others
                    log.exception("Looking for versions of %s failed", name)

    def _scan_model(self, name: str, model: Model, settle: bool) -> None:
        found: Found | None = Found()
        if not model.removed:
            path = Path(model.config.base_path)
            found = model.base_path.look(name, path, model.available(), model.failed(), settle)
        if found is None:
            return
        for number, error in found.unreadable.items():
            self._fail_version(name, model, number, error)
        aspired = aspired_versions(model.config.model_version_policy, found.ready)
        for number in aspired:
            if number not in model.available():
                files = found.fingerprints[number]
                self._load_version(name, model, number, found.present[number], files)
        # The old version serves until a wanted one is available, or the disk has none.
        if any(number in model.available() for number in aspired) or not found.present:
            for number in model.available():
                if number not in aspired:
                    self._unload_version(name, model, number)

    def _fail_version(self, name: str, model: Model, number: int, error: OSError) -> None:
        """Record that a version's files cannot be read."""
        known = model.versions.get(number)
        if known and str(known.error) == str(error):
            return
        log.error("Reading {name: %s version: %d} failed: %s", name, number, error)
        failed = StatusError(Code.UNKNOWN, str(error))
        with self._lock:
            model.versions[number] = Version(number, (), State.END, failed)
        self._on_change(name, number, State.END)

    def _load_version(
        self, name: str, model: Model, number: int, path: Path, files: Fingerprint
    ) -> None:
        version = Version(number, files, State.LOADING)
        with self._lock:
            model.versions[number] = version
        started = time.monotonic()
        try:
            servable = self._load(name, number, path)
        except Exception as error:
            log.error("Loading {name: %s version: %d} failed: %s", name, number, error)
            failure = error if isinstance(error, StatusError) else StatusError.internal(error)
            with self._lock:
                version.state, version.error = State.END, failure
            self._on_change(name, number, State.END)
            return
        with self._lock:
            version.servable, version.state = servable, State.AVAILABLE
        self._on_change(name, number, State.AVAILABLE)
        took = time.monotonic() - started
        log.info("Loaded servable version {name: %s version: %d} in %.2f s", name, number, took)

    def _unload_version(self, name: str, model: Model, number: int) -> None:
        with self._lock:
            version = model.versions[number]
            version.state = State.UNLOADING
        self._on_change(name, number, State.UNLOADING)
        log.info("Unloading servable version {name: %s version: %d}", name, number)
        self._close_if_idle(version)

    def _close_if_idle(self, version: Version) -> None:
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

    # Requests

    def knows(self, name: str) -> bool:
        """Whether a model of that name is, or was, in the configuration."""
        return name in self._models

    @contextmanager
    def acquire(self, spec: Message) -> Iterator[Servable]:
        """Hold the servable of a request: it stays loaded within the block.

        Raises StatusError as `find_version` does.
        """
        with self._lock:
            version = find_version(self._models, spec)
            servable = version.servable
            assert servable is not None  # what is available is loaded
            version.in_use += 1
        try:
            yield servable
        finally:
            with self._lock:
                version.in_use -= 1
            self._close_if_idle(version)

    def status(self, spec: Message) -> list[Message]:
        """See `read_status`."""
        with self._lock:
            return read_status(self._models, spec)

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

        Requests under way may end first. After `seconds` they are stopped.
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
