r"""Signs that files have between columns instead of tabs, and the commands that write tabs.

The client has a copy of this module.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

JSON = "braces of JSON"
_OF_CELLS = {"semicolons": ";", "commas": ",", "bars": "|"}  # separators of tables with quotes
# By its name, the pattern of each sign. Perl reads it, too, byte by byte: no class of other signs.
_ANY_TIMES = {  # in a line
    "semicolons": ";",
    "commas": ",",
    "triple bars": r"\|\|\|?",
    "bars": r"\|",
    "letters \\t": r"\\t",
    "arrows": "[=-]>|→|⇒|⟶",
    "equals signs": "=",
    "dashes": " (?:-|–|—) ",
}
_ONCE = {  # in a line, for texts have them, too
    "colons": ":",
    "full-width colons": "：",
    "full-width commas": "，|、",
    "full-width semicolons": "；",
    "full-width bars": "｜",
    "Arabic commas": "،",
    "Arabic semicolons": "؛",
    "tildes": "~|～",
    "slashes": " / ",
}
_SIGNS = {**_ANY_TIMES, **_ONCE}
_JSON_LINE = r"^\s*[\[{].*[\]}],?$"
_SPACES = r"\S(?:  +|\u3000)\S|^\S+ \S+$"  # between columns
_PERL_SPACES = r"(?:  +|\xe3\x80\x80)+|^\S+\K (?=\S+$)"
_UNPACK = {".gz": "gzip -dc", ".zst": "zstd -dc"}
_NEARLY_ALL = 0.9


def separator_of(lines: Sequence[str]) -> str:
    """Return the name of the sign that nearly all lines of texts have; "" if there is none.

    A sign that is usual in texts, such as a colon, must occur once in each line.
    """
    if _have(lines, _JSON_LINE):
        return JSON
    for name, sign in _SIGNS.items():
        one = f"(?:{sign}){'(?= )' if name == 'colons' else ''}"
        once = f"^(?:(?!{one}).)*{one}(?:(?!{one}).)*$"
        if _have(lines, once if name in _ONCE else one):
            return name
    return "spaces" if _have(lines, _SPACES) else ""


def separator_of_list(lines: Sequence[str]) -> str:
    """Return the name of the sign between word and phones in a list of words; "" for spaces."""
    if _have(lines, _JSON_LINE):
        return JSON
    for name, sign in _SIGNS.items():
        encloses = _have(lines, rf"(?:{sign.strip()})\s*$")  # /p h o n e s/
        if not encloses and _have(lines, rf"^\s*\S+?\s*(?:{sign})\s*\S"):
            return name
    return ""


def tabs_command(separator: str, path: str, first_only: bool = False, output: str = "") -> str:
    """Return the shell command that writes a file with tabs instead of a separator.

    Args:
        separator: a name that `separator_of` or `separator_of_list` returns.
        path: the file; it may be compressed.
        first_only: whether only the first separator of a line ends a column, and nothing is quoted.
        output: the new file; "" for new.tsv.

    Commas, semicolons and bars inside quotes stay, and the quotes are removed.
    """
    cells = "[print(*(' '.join(str(cell).split()) for cell in row), sep='\\t') for row in {}]"
    opened = "open(0, encoding='utf-8-sig', newline='')"
    if separator == JSON:
        rows = (
            f"(json.loads(line.strip(' ,\\r\\n')) for line in {opened} if line.strip(' ,[]\\r\\n'))"
        )
        rows = f"(row.values() if isinstance(row, dict) else row for row in {rows})"
        program = f'python3 -c "import json; {cells.format(rows)}"'
    elif separator in _OF_CELLS and not first_only:
        sign = _OF_CELLS[separator]
        rows = f"csv.reader({opened}, delimiter='{sign}', skipinitialspace=True)"
        program = f'python3 -c "import csv; {cells.format(rows)}"'
    else:
        sign = _PERL_SPACES if separator == "spaces" else f" *(?:{_SIGNS[separator]}) *"
        every = "g" if separator in ("letters \\t", "triple bars") and not first_only else ""
        program = f"perl -pe 's{{{sign}}}{{\\t}}{every}'"
    return rewriting(program, path, output)


def commas_hint(header: str, path: str) -> str:
    """Return the end of an error on a table without commas: the command that writes commas.

    Args:
        header: the first line of the table.
        path: the table; it may be compressed. "" if it is no file.
    """
    sign = next((sign for sign in "\t;|" if sign in header), "")
    names = ("tabs" * (sign == "\t"), *(n for n, x in _SIGNS.items() if re.search(x, header)))
    name = next(filter(None, names), "spaces" if "  " in header else "")
    if not sign and name in ("", "commas"):
        return ": expected commas between columns"
    if sign:
        rows = f"csv.reader(open(0, encoding='utf-8-sig', newline=''), delimiter={sign!r})"
        write = "csv.writer(sys.stdout, lineterminator='\\n')"
        program = f'python3 -c "import csv, sys; {write}.writerows({rows})"'
    else:
        pattern = "  +" if name == "spaces" else f" *(?:{_SIGNS[name]}) *"
        program = f"perl -pe 's{{{pattern}}}{{,}}g'"
    hint = f". It has {name} instead of commas"
    return f"{hint}. To write commas: {rewriting(program, path, 'new.csv')}" if path else hint


def rewriting(program: str, path: str, output: str = "") -> str:
    """Return the shell command that runs a program on a file, and writes `output` or new.tsv."""
    unpack = _UNPACK.get(path[path.rfind(".") :], "")
    path, output = shlex.quote(path), shlex.quote(output or "new.tsv")
    return f"{unpack} {path} | {program} > {output}" if unpack else f"{program} < {path} > {output}"


def _have(lines: Sequence[str], pattern: str) -> bool:
    """Return whether nearly all lines have a pattern."""
    find = re.compile(pattern).search
    return sum(find(line.rstrip()) is not None for line in lines) > _NEARLY_ALL * len(lines)
