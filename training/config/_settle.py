"""Settings that the user did not choose yield to settings that the user chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.config.schema import Config, needs_of, with_values

# What a setting becomes if the user chose a value that it cannot be combined with.
_OFF = {
    "attention": "additive",
    "other_attention": "",
    "copy": False,
    "copy_masking": 0.0,
    "batch_tokens": 0,
    "tie_embeddings": False,
}


def settled(config: Config, chosen: Mapping[str, Any]) -> tuple[Config, dict[str, Any]]:
    """Return a configuration with the user's settings, and the other keys that yield to them.

    If a setting needs a value of another key, the key takes this value. But if the user chose the
    key, or a setting that needs another value of it, the first setting is turned off instead.

    Args:
        config: settings of a preset, or that the program chose.
        chosen: the values that the user chose, by key.

    Raises ConfigError if the user's settings conflict with one another.
    """
    state = {**vars(config), **chosen}
    fixed = set(chosen)  # the user's keys, and those that their settings need

    def give(key: str, value: Any) -> None:
        if key not in fixed:
            state[key] = value

    if state["attention"] != config.attention:  # the options of another mechanism
        give("attention_options", "")
    if "attention" in chosen:  # nothing is left to try
        give("other_attention", "")
    if state["tie_embeddings"] and "readout_units" in chosen:
        give("embedding_size", state["readout_units"])
    if state["concat_pairs"] and state["batch_size"] < 2:
        give("concat_pairs", 0.0)
    if state["concat_pairs"] and state["batch_size"] < 2:
        give("batch_size", 2)
    before: dict[str, Any] = {}
    while before != state:
        before = dict(state)
        for setting, needs in needs_of(state):
            name = setting.partition(" = ")[0]
            for key, value in needs.items():
                give(key, value)
                if state[key] != value:
                    give(name, _OFF[name])
            if name in fixed:
                fixed.update(needs)
        if state["attention"] == state["other_attention"]:
            give("other_attention", "")
    others = {key: value for key, value in state.items() if key not in chosen}
    yielded = {key: value for key, value in others.items() if value != getattr(config, key)}
    return with_values(config, {**yielded, **chosen}), yielded
