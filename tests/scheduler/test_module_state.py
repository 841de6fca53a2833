"""The scheduler's pure packages keep nothing between two calls: no module, and no class, has state of its own.

A number that all decisions of a process count up, or a table that they fill, lets a decision depend on those before it.
So what a module holds is constant. A `Memo` or an ``lru_cache`` with a bound is no state: what it keeps is computed
from its key alone.
"""

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import _lru_cache_wrapper
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, GenericAlias, MappingProxyType, ModuleType, UnionType
from typing import TypeVar, get_origin

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
_READ_ONLY: tuple[object, ...] = (Mapping, Sequence, Collection, Set)
_TYPING = ("typing", "operator")
_MUTATING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove"),
    *("setdefault", "sort", "update"),
}


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
    methods = _outermost(ast.parse(inspect.getsource(kind)))
    return any("self" in map(_root, _changed(one)) for one in methods if getattr(one, "name", "") != "__init__")


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


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """Yield the functions that are not in another one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node
        else:
            yield from _outermost(node)


def _local(function: ast.AST) -> set[str]:
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}


def stores(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the module, or of another one, to which its functions store something."""
    for function in _outermost(tree):
        # `np.add` and the like change none of numpy's own.
        yield from set(map(_root, _changed(function))) - _local(function) - {"", "np"}
        yield from (name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names)


def test_no_function_stores_anything_in_a_module() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _MODULES}
    assert len(trees) > 100
    assert [f"{path.relative_to(ROOT)}: {name}" for path, tree in trees.items() for name in stores(tree)] == []


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_module_holds_is_constant(path: Path) -> None:
    """A list or a dict too, if its type says that it is only read: mypy holds that. Imports are held where they are."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    imports = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ImportFrom)]
    imported = {one.asname or one.name for node in imports for one in node.names}
    read_only = {name for name, kind in inspect.get_annotations(module).items() if get_origin(kind) in _READ_ONLY}
    own = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    found = [part for name in own.keys() - imported - read_only for part in variable_parts(own[name], name)]
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
