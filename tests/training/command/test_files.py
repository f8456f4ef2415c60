import argparse
import math

import pytest

from training.command.errors import UserError
from training.command.files import read_json, write_json
from training.command.parser import file_to_write


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_has_no_numbers_that_are_not_finite(tmp_path, value):
    file = tmp_path / "a.json"
    write_json(file, {"a": 1.5, "b": "é"})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(file, {"a": value})
    assert read_json(file) == {"a": 1.5, "b": "é"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("content", [b"{", b"\xff", None])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, content):
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"cannot read .*a\.json: ") as caught:
        read_json(file)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_written_is_found_out_without_writing(tmp_path):
    (tmp_path / "there").write_text("kept")
    for name in ("new", "there"):
        assert file_to_write(str(tmp_path / name)) == tmp_path / name
    for path, said in (
        (tmp_path, "it is a directory"),
        (tmp_path / "no" / "new", "there is no directory"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=said):
            file_to_write(str(path))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "kept"
