"""Commands that pages show can be typed: their flags and values exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.plugin.arguments import parse
from tests.docs.pages import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
_COMMAND = re.compile(r"^ *(?:\$ )?kubectl mooring(?= )((?:.*\\\n)*.*)$", re.MULTILINE)


def shown(page: Path) -> list[list[str]]:
    """Return the words of each `kubectl mooring` command in a page's blocks, without pipes and redirections."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?\n(.*?)^```$|((?:^ {4}.*\n)+)", text, re.MULTILINE | re.DOTALL)
    found = [command for fenced, indented in blocks for command in _COMMAND.findall(fenced or indented)]
    typed = [shlex.split(re.split(r" [|>] ?|\s#", one.replace("\\\n", " "))[0]) for one in found]
    # The reader puts a name of his own in the place of one in capitals.
    return [[word.lower() if word.isupper() else word for word in words] for words in typed]


def test_the_pages_show_commands() -> None:
    """Without them the test below would check nothing."""
    assert sum(len(shown(page)) for page in PAGES) > 30


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)], ids=lambda page: page.stem)
def test_a_shown_command_of_kubectl_mooring_is_one(page: Path) -> None:
    """A flag that was renamed is not shown under its old name."""
    for words in shown(page):
        if words and not words[0].endswith(":"):  # a message of the program
            assert parse(words).command == words[0]


def _keys(values: dict[str, Any], above: str = "") -> set[str]:
    """Return the paths of all values of a chart."""
    return {
        path
        for name, value in values.items()
        for path in (f"{above}{name}", *(_keys(value, f"{above}{name}.") if isinstance(value, dict) else ()))
    }


def test_values_of_the_chart_that_pages_set_exist() -> None:
    """Helm ignores a value that no template reads."""
    values = yaml.safe_load((ROOT / "manifests/helm/mooring/values.yaml").read_text(encoding="utf-8"))
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"--set(?:-file|-string)? '?([\w.]+)=", text))
    assert len(named) >= 8
    assert named - _keys(values) == set()
