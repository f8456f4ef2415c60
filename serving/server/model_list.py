"""A configuration's list of models: its checks, and the versions that it asks for."""

from collections.abc import Collection, Iterable
from pathlib import Path

from google.protobuf.message import Message

from serving.savedmodel.status import invalid

_PLATFORM = "tensorflow"


def check_model_list(config: Message, served: Collection[str]) -> None:
    """Raise StatusError INVALID_ARGUMENT for a list that cannot be served.

    Args:
        config: the list.
        served: names of the models that are served now, all of the platform `tensorflow`.
    """
    seen: set[str] = set()
    for model in config.config:
        _check_model(model, seen, served)
        seen.add(model.name)


def _check_model(model: Message, seen: set[str], served: Collection[str]) -> None:
    platform = model.model_platform or (_PLATFORM if model.model_type else "")
    problem = None
    if model.name in seen:
        problem = f"Illegal to list model {model.name} multiple times in config list"
    elif not Path(model.base_path).is_absolute():
        problem = (
            f"Expected model {model.name} to have an absolute path or URI; got "
            f"base_path()={model.base_path}"
        )
    elif not platform:
        problem = (
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform."
        )
    elif platform != _PLATFORM and model.name in served:
        problem = (
            f"Illegal to change a model's platform. For model {model.name} platform was "
            f"{_PLATFORM} and new platform requested is {platform}"
        )
    elif platform != _PLATFORM:
        problem = f"Model {model.name} requests unsupported platform {platform}"
    if problem:
        raise invalid(problem)


def aspired_versions(policy: Message, present: Iterable[int]) -> list[int]:
    """The versions among `present` that the policy asks for, newest first."""
    numbers = sorted(present, reverse=True)
    match policy.WhichOneof("policy_choice"):
        case "all":
            return numbers
        case "specific":
            return [number for number in numbers if number in policy.specific.versions]
        case _:
            return numbers[: policy.latest.num_versions or 1]
