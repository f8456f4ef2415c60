"""Models and their versions: states, labels, and the version that a request names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from google.protobuf.message import Message

from serving.client import protobuf
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.base_path import BasePath
from serving.server.servable import Servable
from serving.server.storage import Fingerprint

_Status = protobuf.message("ModelVersionStatus")
State = _Status.State


@dataclass
class Version:
    """A version on disk; `in_use` counts its running requests."""

    number: int
    fingerprint: Fingerprint
    state: int = State.START
    error: StatusError | None = None
    servable: Servable | None = None
    in_use: int = 0

    def status(self) -> Message:
        """Its part of a GetModelStatusResponse."""
        proto = _Status(version=self.number, state=self.state)
        proto.status.error_code = self.error.code if self.error else Code.OK
        proto.status.error_message = self.error.message if self.error else ""
        return proto


@dataclass
class Model:
    """A configured model, or a removed one that still has versions."""

    config: Message
    versions: dict[int, Version] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    base_path: BasePath = field(default_factory=BasePath)
    removed: bool = False

    def available(self) -> list[int]:
        """The numbers of the versions that answer requests."""
        return [n for n, version in self.versions.items() if version.state == State.AVAILABLE]

    def failed(self) -> dict[int, Fingerprint]:
        """The versions that failed, with their files at that time."""
        return {n: version.fingerprint for n, version in self.versions.items() if version.error}

    def why_not_available(self) -> str:
        """The error of the last version, or that there is no version."""
        name = self.config.name
        errors = [
            f"{{name: {name} version: {number}}} due to error: {version.error}"
            for number, version in sorted(self.versions.items())
            if version.error
        ]
        path = self.config.base_path
        return errors[-1] if errors else f"{{name: {name}}}: no version in {path}"


def find_version(models: Mapping[str, Model], spec: Message) -> Version:
    """The available version that `spec` names.

    Raises StatusError: INVALID_ARGUMENT without a name or with an unknown label, NOT_FOUND if that
    version is not available.
    """
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    model = models.get(spec.name)
    choice = spec.WhichOneof("version_choice")
    wanted: int | None = None
    if choice == "version":
        wanted = spec.version.value
    elif choice == "version_label":
        wanted = model.labels.get(spec.version_label) if model else None
        if wanted is None:
            raise invalid(
                f"Unrecognized servable version label: {spec.version_label}",
            )
    available = model.available() if model else []
    if model and available and wanted is None:
        return model.versions[max(available)]
    if model and wanted is not None and wanted in available:
        return model.versions[wanted]
    request = f"Latest({spec.name})" if wanted is None else f"Specific({spec.name}, {wanted})"
    raise StatusError(Code.NOT_FOUND, f"Servable not found for request: {request}")


def read_status(models: Mapping[str, Model], spec: Message) -> list[Message]:
    """State of the versions that `spec` names, newest first.

    Raises StatusError as `find_version` does; NOT_FOUND for an unknown version.
    """
    model = models.get(spec.name)
    versions = dict(model.versions) if model else {}
    choice = spec.WhichOneof("version_choice")
    if choice == "version_label":
        versions = {v.number: v for v in [find_version(models, spec)]}
    elif choice == "version":
        number = spec.version.value
        if number not in versions:
            raise StatusError(
                Code.NOT_FOUND, f"Could not find version {number} of model {spec.name}"
            )
        versions = {number: versions[number]}
    if not versions:
        raise StatusError(Code.NOT_FOUND, f"Could not find any versions of model {spec.name}")
    return [versions[number].status() for number in sorted(versions, reverse=True)]
