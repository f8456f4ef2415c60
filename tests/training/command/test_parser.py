import pytest

from training.command.parser import Parser


@pytest.mark.parametrize(
    ("flag", "settings", "said"),
    [
        ("--no-tables", {"action": "store_true"}, "leave them out\n"),
        ("--count", {"type": int, "default": 0}, "leave them out; default: 0\n"),
        ("--share", {"type": float, "default": 1.0}, "leave them out; default: 1\n"),
    ],
)
def test_help_names_a_default_where_there_is_one_to_name(flag, settings, said):
    parser = Parser(prog="program")
    parser.add_argument(flag, help="leave them out", **settings)
    assert parser.format_help().endswith(said)
