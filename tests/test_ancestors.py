"""Each failure of an earlier system that tests/ancestors.md lists has a test here, and that test exists."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ITEMS = {"B1": 22, "B2": 16, "B3": 11, "B4": 9}
_ROW = re.compile(r"^\| (B[1-4]\.\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_FUNCTION = re.compile(r"^ *(?:async )?def (\w+)", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def _functions(path: str) -> frozenset[str]:
    return frozenset(_FUNCTION.findall((ROOT / path).read_text()))


def _rows() -> list[tuple[str, str]]:
    text = (ROOT / "tests/ancestors.md").read_text()
    return [(row[1], row[3]) for row in _ROW.finditer(text)]


def test_every_item_has_exactly_one_row() -> None:
    """The list is complete: 22 items of B1, 16 of B2, 11 of B3, 9 of B4, each once, in order."""
    expected = [f"{section}.{number}" for section, count in ITEMS.items() for number in range(1, count + 1)]
    assert [item for item, _ in _rows()] == expected


def test_every_row_names_a_test_or_says_why_not_yet() -> None:
    """Every item has a test or a reason."""
    silent = [item for item, held in _rows() if not _TEST.search(held) and not held.startswith("Not yet: ")]
    assert silent == []


def test_every_test_that_is_named_exists() -> None:
    """A test that was renamed or removed is not claimed any more."""
    named = [(item, path, name) for item, held in _rows() for path, name in _TEST.findall(held)]
    missing = [
        f"{item}: {path}::{name}"
        for item, path, name in named
        if not (ROOT / path).exists() or name not in _functions(path)
    ]
    assert named
    assert missing == []
