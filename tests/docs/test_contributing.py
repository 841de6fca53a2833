"""The page for contributors names places in the code: each is there, under that name."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, section
from tests.support.purity import pure_modules

PAGE = "contributing.md"
_FOLDERS = "mooring|scheduler|advertiser|cri_shim|cni|cli|devcluster|bench|tests|protos"
_PLACE = re.compile(rf"`((?:{_FOLDERS})/[\w/.-]*)(?::([\w.]+))?`")
_QUESTION = re.compile(r"^- (Where .+?\?|What .+?\?) ((?:.+\n?)+?)(?=^- |^\n|\Z)", re.MULTILINE)


def _definitions(path: str) -> Iterator[str]:
    """Yield the names of a module's functions and classes, and of the methods as ``Class.method``."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))


def _places() -> list[tuple[str, str]]:
    return _PLACE.findall((ROOT / "docs" / PAGE).read_text(encoding="utf-8"))


def test_every_place_that_is_named_exists() -> None:
    """The page does not name a folder or module that moved."""
    named = {path for path, _ in _places()}
    assert named
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("place", [f"{path}:{name}" for path, name in _places() if name])
def test_every_name_is_defined_in_its_module(place: str) -> None:
    """The page does not name a function or class that was renamed."""
    path, name = place.split(":")
    assert name in set(_definitions(path))


def test_ten_questions_are_answered_by_a_name_in_the_code() -> None:
    """Each question of a reader who knows kube-scheduler leads to a definition, not to a folder."""
    answers = dict(_QUESTION.findall(section(PAGE, "Where is it?")))
    assert len(answers) >= 10
    assert {question for question, answer in answers.items() if not re.search(r"\.py:\w", answer)} == set()


def _contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter."""
    tables: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, Any]] = tables["tool"]["importlinter"]["contracts"]
    return contracts


def _pure_folders() -> list[str]:
    """Return the folders that the one contract of that type lists."""
    (folders,) = (one["folders"] for one in _contracts() if one["type"] == "pure")
    return list(folders)


def test_the_rooms_of_the_scheduler_are_those_of_the_layers_contract() -> None:
    """A room that is new or gone is new or gone on the page."""
    rooms = re.findall(r"^- `scheduler/([\w.]+?)/?`: ", section(PAGE, "Read the tree"), re.MULTILINE)
    (layers,) = (one["layers"] for one in _contracts() if one.get("containers") == ["scheduler"])
    there = {name.strip() for layer in layers for name in layer.split("|")} - {"__main__"}
    assert {room.removesuffix(".py") for room in rooms} == there


def test_every_room_of_the_scheduler_but_its_edge_is_listed_as_pure() -> None:
    """All I/O is in `server/`: a room that is new is pure, or it is there."""
    layers, *others = (one["layers"] for one in _contracts() if one.get("containers") == ["scheduler"])
    pure = {folder.removeprefix("scheduler.") for folder in _pure_folders()}
    assert others == []
    assert set(layers) - pure == {"__main__", "server"}


_BUILTINS = {"print", "open", "input"}
_CLOCKS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def test_what_is_pure_calls_nothing_that_does_io_without_an_import_of_its_own() -> None:
    """The contract sees imports only: builtins, and clocks of modules that also hold values, need a look at calls."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
        for path in pure_modules()
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ".".join((name := ast.unparse(call.func)).split(".")[-2:]) in _BUILTINS | _CLOCKS
    ]
    assert len(list(pure_modules())) > 100
    assert found == []


def test_the_scheduler_has_at_most_a_dozen_entries() -> None:
    """A reader takes in the rooms at one look."""
    entries = [path for path in (ROOT / "scheduler").iterdir() if path.name not in ("__init__.py", "__pycache__")]
    assert len(entries) <= 12


_GENERATED = (ROOT / "cri_shim" / "pb", ROOT / "scheduler" / "server" / "pb")
_ROOMS = [
    path
    for program in ("scheduler", "advertiser", "cni", "cri_shim", "cli", "mooring")
    for path in sorted((ROOT / program).rglob("__init__.py"))
    if path.parent not in _GENERATED
]


@pytest.mark.parametrize("room", _ROOMS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_each_folder_says_in_five_lines_what_lives_there(room: Path) -> None:
    """Also what may not live there, which only a reader can check."""
    lines = room.read_text(encoding="utf-8").splitlines()
    assert 1 <= len(lines) <= 5, lines
