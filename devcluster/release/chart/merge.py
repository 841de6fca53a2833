"""Merge an object's variants into one template: what only some of them have stands between conditions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devcluster.release.chart.conditions import condition
from devcluster.release.chart.scalars import scalar

Path = tuple[str, ...]
Variants = Mapping[str, Any]
_STEP = "  "
_UNNAMED = ("{", "[", '"')


@dataclass(frozen=True, slots=True)
class Settings:
    """Where values come in, by path: in place of a part, behind a part's last element, and whether it is there."""

    replaced: Mapping[Path, str]
    added: Mapping[Path, str]
    conditions: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """The merge of one object.

    ``order`` is the object, or a part of it, with every component: the order of its lists is that. A path has an
    element of a list by its name, or as ``[0]``.
    """

    settings: Settings

    def lines(self, variants: Variants, order: Any, path: Path = (), depth: int = 0) -> Iterator[str]:
        """Yield the lines of a part that has several lines: a mapping, or a list."""
        if all(isinstance(value, dict) for value in variants.values()):
            yield from self._mapping(variants, order, path, depth)
        else:
            yield from self._list(variants, order, path, depth)
        yield from _indented(self.settings.added.get(path, ""), depth)

    def _mapping(self, variants: Variants, order: Any, path: Path, depth: int) -> Iterator[str]:
        for key in _union([*variants.values()]):
            having = {name: value[key] for name, value in variants.items() if key in value}
            inner = order.get(key) if isinstance(order, dict) else None
            yield from self._part(key, having, frozenset(variants), inner, (*path, key), depth)

    def _list(self, variants: Variants, order: Any, path: Path, depth: int) -> Iterator[str]:
        known = [order] if isinstance(order, list) else []
        keyed = [{_identity(one): one for one in value} for value in (*known, *variants.values())]
        by_variant = {name: {_identity(one): one for one in value} for name, value in variants.items()}
        for number, key in enumerate(_union(keyed)):
            having = {name: value[key] for name, value in by_variant.items() if key in value}
            if having:
                inner = keyed[0].get(key) if known else None
                where = (*path, f"[{number}]" if key.startswith(_UNNAMED) else key)
                body = self._item(having, inner, where, depth)
                yield from _when(condition(frozenset(having), frozenset(variants)), body)

    def _part(
        self, key: str, having: Variants, scope: frozenset[str], order: Any, path: Path, depth: int
    ) -> Iterator[str]:
        body = _when(condition(frozenset(having), scope), self._entry(key, having, order, path, depth))
        yield from _when(self.settings.conditions.get(path, ""), body)

    def _entry(self, key: str, having: Variants, order: Any, path: Path, depth: int) -> Iterator[str]:
        head, values = f"{_STEP * depth}{_key(key)}:", list(having.values())
        if (text := self.settings.replaced.get(path)) is not None:
            first, *rest = _indented(text, depth)
            yield f"{head} {first.strip()}" if first.strip() else head
            yield from rest
        elif _nests(values):
            yield head
            yield from self.lines(having, order, path, depth + 1)
        else:
            yield from _alternatives(having, lambda value: _scalar_lines(head, key, value, depth))

    def _item(self, having: Variants, order: Any, path: Path, depth: int) -> Iterator[str]:
        if not _nests(list(having.values())):
            yield from _scalar_lines(f"{_STEP * depth}-", "", next(iter(having.values())), depth)
            return
        lines = list(self.lines(having, order, path, depth + 1))
        first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("{{-"))
        if first:
            raise ValueError(f"the first field of {'.'.join(path)!r} is not in every variant")
        yield f"{_STEP * depth}- {lines[0].strip()}"
        yield from lines[1:]


def _nests(values: Sequence[Any]) -> bool:
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        raise ValueError(f"a part is of several kinds: {sorted(kind.__name__ for kind in kinds)}")
    return bool(kinds & {dict, list}) and all(values)


def _scalar_lines(head: str, key: str, value: Any, depth: int) -> list[str]:
    first, *rest = scalar(key, value, 2 * (depth + 1))
    return [f"{head} {first}", *rest]


def _alternatives(having: Variants, written: Any) -> Iterator[str]:
    """Yield a value that variants differ in: the first one's for all that do not differ from it."""
    scope, usual = frozenset(having), next(iter(having.values()))
    others = {json.dumps(value): value for value in having.values() if value != usual}
    if not others:
        yield from written(usual)
        return
    word = "if"
    for value in others.values():
        when = condition(frozenset(name for name, one in having.items() if one == value), scope)
        yield f"{{{{- {word} {when} }}}}"
        yield from written(value)
        word = "else if"
    yield "{{- else }}"
    yield from written(usual)
    yield "{{- end }}"


def _when(test: str, body: Iterator[str]) -> Iterator[str]:
    if not test:
        yield from body
        return
    yield f"{{{{- if {test} }}}}"
    yield from body
    yield "{{- end }}"


def _indented(text: str, depth: int) -> list[str]:
    """Return a setting's lines; ``@n@`` in it is the number of blanks before the part's fields, plus n."""
    if not text:
        return []
    lines = []
    for line in text.split("\n"):
        for more in ("0", "2", "4", "6"):
            line = line.replace(f"@{more}@", str(2 * depth + int(more)))
        lines.append(line if line.startswith("{{-") or not line else _STEP * depth + line)
    return lines


def _union(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return all keys; a key that only a later mapping has comes behind the one that it follows there."""
    found: list[str] = []
    for mapping in mappings:
        place = 0
        for key in mapping:
            if key in found:
                place = found.index(key) + 1
            else:
                found.insert(place, key)
                place += 1
    return found


def _identity(element: Any) -> str:
    """Return what an element of a list is known by: its name, else all of it."""
    if isinstance(element, dict) and isinstance(element.get("name"), str):
        return str(element["name"])
    return json.dumps(element, sort_keys=True)


def _key(key: str) -> str:
    return scalar("", key, 0)[0]
