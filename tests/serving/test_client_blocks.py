"""The clients' blocks of code in the documentation run, on servers of small models."""

import re
from pathlib import Path

from tests.serving.test_readers import pictures

ROOT = Path(__file__).parents[2]


def run(page, port, **names):
    """Run the one block of a page, with the port and other names in place of its own."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for old, new in {"localhost:8500": f"localhost:{port}", **names}.items():
        assert old in block
        block = block.replace(old, str(new))
    exec(compile(block, page, "exec"), {})


def test_the_page_of_the_client(shared_server, capsys):
    run("docs/serving/client.md", shared_server.port, **{"en-fr": "upper"})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "SHE IS EATING A GREEN APPLE. -3.0 False"
    assert second.startswith("HE DOESN'T LIKE APPLES.")


def test_the_readme_of_the_client_alone(shared_server, capsys):
    names = {"en-fr": "upper", "keras_attention_client": "serving.client"}
    run("packaging/client/README.md", shared_server.port, **names)
    assert capsys.readouterr().out == "SHE IS EATING A GREEN APPLE.\n"


def test_the_page_of_images(kinds_server, tmp_path, capsys):
    names = {"a.png": tmp_path / "a.png", "b.jpg": tmp_path / "b.jpg"}
    for path, picture in zip(names.values(), pictures(2), strict=True):
        path.write_bytes(picture)
    run("docs/guides/images.md", kinds_server.port, **names, **{'"digits"': '"bright"'})
    read = capsys.readouterr().out.splitlines()
    assert [line.startswith("Regions(") for line in read] == [True, True]


def test_the_page_of_histories(kinds_server, capsys):
    run("docs/guides/histories.md", kinds_server.port, **{'"liver"': '"mean"'})
    assert "probability=1.5" in capsys.readouterr().out  # the mean of 1.1 and 2.0, in float32
