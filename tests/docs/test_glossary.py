"""The glossary names what the scheduler's source has: a class that was renamed is not explained under its old name."""

import ast
import re

from tests.docs.pages import ROOT, section

_ROW = re.compile(r"^\| (`.+?) \|", re.MULTILINE)


def test_every_class_in_the_glossary_exists_in_the_scheduler() -> None:
    """The first column of the source's table holds classes, and fields written in lower case, of `scheduler/`."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "scheduler").rglob("*.py")]
    classes = {node.name for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    rows = _ROW.findall(section("glossary.md", "In the scheduler's source"))
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 20
    gone = {name for name in named - classes if name[0].isupper() or not any(f"{name}:" in text for text in texts)}
    assert gone == set()
