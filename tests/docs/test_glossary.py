"""The glossary names what the source has: a class that was renamed is not explained under its old name."""

import ast
import re

import pytest

from tests.docs.pages import ROOT, section

_ENTRY = re.compile(r"^- (`.+?): ", re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "folders", "least"),
    [
        ("In the scheduler's source", ("scheduler",), 45),
        ("In the source of the node's programs", ("advertiser", "cni", "cri_shim"), 9),
    ],
)
def test_every_class_in_the_glossary_exists_in_the_source(heading: str, folders: tuple[str, ...], least: int) -> None:
    """The entries of a source's list are classes, and fields written in lower case, of these folders."""
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")]
    classes = {node.name for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
    entries = _ENTRY.findall(section("glossary.md", heading))
    named = {name for entry in entries for name in re.findall(r"`(\w+)`", entry)}
    assert len(named) >= least
    gone = {name for name in named - classes if name[0].isupper() or not any(f"{name}:" in text for text in texts)}
    assert gone == set()
