"""The order of rows and items: by a column of the table, or as in kubectl by a JSONPath of the items. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cli.plugin.output.jsonpath import Path
from cli.plugin.reports.tables import Answer, Cell, Table
from mooring.natural_order import natural

T = TypeVar("T")
_Key = tuple[int, object]
_Row = Sequence[Cell]
_NUMBER = re.compile(r"-?\d+").fullmatch


class SortError(RuntimeError):
    """An order that an answer does not have: the message for a person."""


def sort_answer(answer: Answer, by: str) -> Answer:
    """Return an answer with its rows and its items in this order; the other order follows the one that was named."""
    items, (table, *others) = _items(answer), answer.tables
    if by.startswith((".", "{", "$")):
        path = Path(by)
        found = [path.values(item) for item in items]
        if items and not any(found):
            raise SortError(f"couldn't find any field with path {by!r} in the list of objects")
        items = _ordered(items, [_key(values[0] if values else None) for values in found])
        rows = _follow(table.rows, [_row_key(table, row, answer) for row in table.rows], _item_keys(items, answer))
    else:
        at = _column(table, by)
        rows = _ordered(table.rows, [_key(_cell_value(row[at].text)) for row in table.rows])
        items = _follow(items, _item_keys(items, answer), [_row_key(table, row, answer) for row in rows])
    return replace(answer, document={**answer.document, "items": items}, tables=(replace(table, rows=rows), *others))


def _items(answer: Answer) -> Sequence[Mapping[str, object]]:
    items = answer.document["items"]
    assert isinstance(items, list), "a command with --sort-by has items"
    return items


def _column(table: Table, name: str) -> int:
    if name.upper() not in table.columns:
        raise SortError(f"--sort-by {name!r}: must be .FIELD or one of {', '.join(table.columns)}")
    return table.columns.index(name.upper())


def _cell_value(text: str) -> object:
    if text in ("-", "?"):
        return None
    return int(text) if _NUMBER(text) else text


def _key(value: object) -> _Key:
    """Return a key by which no value comes before numbers, and these before texts in their natural order."""
    if value is None:
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return 2, natural(str(value))


def _ordered(values: Sequence[T], keys: Sequence[_Key]) -> list[T]:
    pairs = sorted(zip(keys, range(len(values)), strict=True), key=lambda pair: pair[0])
    return [values[at] for _, at in pairs]


def _follow(values: Sequence[T], keys: Sequence[tuple[str, ...]], order: Sequence[tuple[str, ...]]) -> list[T]:
    """Return values in the order in which their keys come first in another list."""
    ranks: dict[tuple[str, ...], int] = {}
    for rank, key in enumerate(order):
        ranks.setdefault(key, rank)
    return [values[at] for at in sorted(range(len(values)), key=lambda at: ranks.get(keys[at], len(ranks)))]


def _item_keys(items: Sequence[Mapping[str, object]], answer: Answer) -> list[tuple[str, ...]]:
    return [tuple(str(item[name]) for name in answer.identity) for item in items]


def _row_key(table: Table, row: _Row, answer: Answer) -> tuple[str, ...]:
    """Return which item a row is about: the columns of its identity begin with those of the item."""
    return tuple(row[table.columns.index(name)].text for name in table.identity[: len(answer.identity)])
