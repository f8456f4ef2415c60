import csv

from lab.__main__ import main
from tests.training.conftest import no_pictures, tiny_run

__all__ = ["no_pictures", "tiny_run"]


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def assert_kept(command, table, monkeypatch, module, name):
    """The command once more leaves its table as it is, without the function `name`."""
    before = table.read_bytes()
    monkeypatch.setattr(module, name, None)
    main(command)
    assert table.read_bytes() == before
