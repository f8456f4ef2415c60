"""The rules of texts are written once; JavaScript reads what Python reads."""

import json
import re
from pathlib import Path

from serving.page._files import page
from serving.portable.engine._scripts import rules, worker
from tests.serving.javascript import needs_node, run
from training.command.visible import INVISIBLE
from training.data import rules as table

ROOT = Path(__file__).parents[4]
CONSTANTS = re.compile(r"^export const (\w+) = (.*);$", re.MULTILINE)


def test_the_page_and_its_worker_have_the_table_as_it_is_now(monkeypatch):
    monkeypatch.setattr(table, "WORD", "a rule of its own")
    monkeypatch.setattr(table, "FULL_WIDTH_END", "[.]$")
    assert 'const WORD = "a rule of its own";' in worker()
    assert 'const FULL_WIDTH_END = "[.]$";' in page()


@needs_node
def test_javascript_has_the_values_of_python_and_reads_the_patterns():
    script = """
    import * as rules from "engine/rules.js";
    const letter = new RegExp(`^${rules.GOES_ON.replace("LETTER", rules.LETTER)}`, "u");
    const goes = [..."a\u0301é9'’-あア漢ー。 ー"].map((x) => letter.test(x));
    new RegExp(rules.SENTENCE_END, "u");
    process.stdout.write(JSON.stringify({ rules, goes }));
    """
    found = run(script)
    goes_on = [table.goes_on(letter) for letter in "a\u0301é9'’-あア漢ー。 ー"]
    assert goes_on == found["goes"] == [True] * 7 + [False] * 3 + [True] + [False] * 2 + [True]
    for name, value in found["rules"].items():
        own = INVISIBLE if name == "INVISIBLE" else getattr(table, name)
        own = sorted(own) if isinstance(own, frozenset) else own
        if name in ("LETTER", "IDEOGRAPH"):  # the scripts' names are longer there
            value = value.replace("Script=", "")
        assert json.loads(json.dumps(own)) == value, name
    assert {"WORD", "WHITE", "SENTENCE_END", "END_ID", "MISSING"} <= found["rules"].keys()


def test_no_rule_is_written_again():
    """Constants of some length, and the parts that patterns are made of."""
    marks = [
        "lorsqu",
        "not done",
        "VERTICAL IDEOGRAPHIC",
        "\\u202f\\u205f",
        "。！？",
        "isalnum() or c",
    ]
    marks += [line for _, value in CONSTANTS.findall(rules()) if len(line := value.strip('"')) > 20]
    files = [*ROOT.glob("training/**/*.py"), *ROOT.glob("serving/**/*.py")]
    files += ROOT.glob("serving/**/*.js")
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    for mark in marks:
        places = {str(path) for path, text in texts.items() if mark in text}
        assert places <= {str(ROOT / "training/data/rules.py")}, mark
