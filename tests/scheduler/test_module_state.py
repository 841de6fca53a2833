"""The scheduler's pure packages keep nothing between two calls: no module, and no class, has state of its own.

A number that all decisions of a process count up, or a table that they fill, lets a decision depend on those before it.
So what a module holds is constant. A `Memo` or an ``lru_cache`` with a bound is no state: what it keeps is computed
from its key alone.
"""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import _lru_cache_wrapper
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, GenericAlias, MappingProxyType, ModuleType, UnionType
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from scheduler.kube.selection.affinity import InternPool
from scheduler.placement.memo import Memo
from scheduler.placement.steps import Steps
from tests.support.purity import ROOT, pure_modules

_MODULES = sorted(path for path in pure_modules() if path.is_relative_to(ROOT / "scheduler"))
_CONSTANT = (str, bytes, int, float, complex, type(None), re.Pattern, np.dtype, Enum, Memo, InternPool)
_CODE = (type, FunctionType, BuiltinFunctionType, ModuleType, GenericAlias, UnionType, TypeVar)
_READ_ONLY = re.compile(r"(ClassVar\[|Final\[)?(Mapping|Sequence|Collection|Set|MultiMapping)\b")
_TYPING = ("typing", "operator")
_MUTATING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "sort", "update"),
}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def variable_parts(value: object, where: str) -> Iterator[str]:
    """Yield what of a value can change."""
    if isinstance(value, _lru_cache_wrapper):
        if value.cache_parameters()["maxsize"] is None:
            yield f"{where}: an lru_cache without a bound"
    elif not (isinstance(value, (*_CONSTANT, *_CODE)) or type(value) is object or type(value).__module__ in _TYPING):
        parts = _parts(value)
        if parts is None:
            yield f"{where}: {type(value).__name__}"
        for name, part in (parts or {}).items():
            yield from variable_parts(part, f"{where}.{name}")


def _parts(value: object) -> Mapping[object, object] | None:
    """Return the parts of a value that always has the same ones; None of any other."""
    kind = type(value)
    if isinstance(value, tuple | frozenset):
        return dict(enumerate(value))
    if isinstance(value, MappingProxyType):
        return value
    if dataclasses.is_dataclass(value) and getattr(kind, "__dataclass_params__").frozen:  # noqa: B009 - not in its type
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if kind.__module__.startswith(("scheduler.", "mooring.")) and not _changes_itself(kind):
        return getattr(value, "__dict__", {})
    return None


def _changes_itself(kind: type) -> bool:
    """Return whether a method of a class stores something in ``self`` once it is made."""
    path = ROOT / (kind.__module__.replace(".", "/") + ".py")
    (body,) = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    methods = [node for node in body.body if isinstance(node, ast.FunctionDef) and node.name != "__init__"]
    return any("self" in map(_root, _changed(method)) for method in methods)


def _changed(function: ast.AST) -> Iterator[ast.expr]:
    """Yield the objects of which a function changes an attribute or a part."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATING:
            yield node.func.value


def _root(expression: ast.expr) -> str:
    while isinstance(expression, ast.Attribute | ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of a module that are not those of other modules."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (name.asname or name.name for name in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _local(function: ast.AST) -> set[str]:
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def stores(tree: ast.Module) -> Iterator[str]:
    """Yield the module's names to which its functions store something."""
    names = set(_bound(tree.body))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            own = names - _local(function)
            yield from (root for root in map(_root, _changed(function)) if root in own)
        elif isinstance(function, ast.Global):
            yield from function.names


def _annotations(tree: ast.Module) -> Mapping[str, str]:
    nodes = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    return {node.target.id: ast.unparse(node.annotation) for node in nodes if isinstance(node.target, ast.Name)}


def test_no_function_stores_anything_in_its_module() -> None:
    found = [f"{path.relative_to(ROOT)}: {name}" for path in _MODULES for name in stores(_tree(path))]
    assert len(_MODULES) > 100
    assert found == []


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_module_holds_is_constant(path: Path) -> None:
    """A list or a dict too, if its type says that it is only read: mypy holds that."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    tree, module = _tree(path), importlib.import_module(name)
    read_only = {name for name, text in _annotations(tree).items() if _READ_ONLY.match(text)}
    own = set(_bound([node for node in tree.body if not isinstance(node, ast.ImportFrom)])) - {"__all__"}
    found = [text for one in sorted(own - read_only) for text in variable_parts(getattr(module, one, None), one)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "class Count:\n    steps = 0\ndef spend():\n    Count.steps += 1",
        "count = Count()\ndef spend():\n    count.steps += 1",
        "known = {}\ndef find(key):\n    known[key] = 1",
        "known = []\ndef find(key):\n    known.append(key)",
        "steps = 0\ndef spend():\n    global steps\n    steps += 1",
        "from elsewhere import count\nclass Search:\n    def spend(self):\n        count.steps = 1",
    ],
)
def test_a_store_is_seen(text: str) -> None:
    assert list(stores(ast.parse(text)))


@pytest.mark.parametrize("value", [[], {}, {1}, iter(()), (1, [2]), Steps()])
def test_a_value_that_can_change_is_seen(value: object) -> None:
    """Such as a number that is counted up, alone or as a part."""
    assert list(variable_parts(value, "value"))
