"""In which topology domains a group is tried, and in which order. Pure.

What it is: a domain is the nodes with one value of a level's label and of the labels of all wider levels, because names
of racks repeat. ``prefer`` gives the levels from narrow to wide, ``within`` the widest one. On each level the domains
that could hold the whole group are tried, the smallest first. On the widest one, in the end, those are tried that could
hold at least as many as are needed, the largest first. Without ``within`` the whole cluster is that level.

Why it is right: how many members a domain could hold is an upper bound, made of what each node has left of cpu, VFs,
Mb/s and so on. A domain that is left out for it holds fewer in truth too; one that is tried is tried exactly. While
members are placed, only the domains in which they are count: on the narrowest level that they share, and wider ones.
While none of their nodes is known, nobody joins them in a domain that all must share.

What it costs: some arrays over all nodes for each distinct member and level.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts
from scheduler.cache.groups.sources import Group
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.cycle import NAMED
from scheduler.cycle.decisions import Unschedulable
from scheduler.cycle.groups.domain_bounds import DomainBound
from scheduler.cycle.groups.group_room import GroupRoom, Kind, Part, parts_of, room_for, sums_of
from scheduler.cycle.groups.slices import Slices

# What no node has: a label's value may be empty, and has no slash.
_NO_VALUE = "/"


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with these values of some labels, the narrowest level first; no labels: the whole cluster."""

    labels: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """Return the domain in words; empty for the whole cluster, and for no node at all."""
        if not self.labels or self.labels[0][1] == _NO_VALUE:
            return ""
        return f"{self.labels[0][0]} {self.labels[0][1]!r}"

    def rows(self, nodes: NodeColumns) -> Flags | None:
        """Return which rows are in the domain now; None for all."""
        if not self.labels:
            return None
        inside: Flags = nodes.valid[: nodes.size].copy()
        for key, value in self.labels:
            column = nodes.label(key)
            wanted = next((index for index, one in enumerate(column.values) if one == value), -1)
            inside &= column.ids[: nodes.size] == wanted
        return inside

    def row_numbers(self, nodes: NodeColumns) -> Rows:
        """Return the numbers of the rows that are in the domain now."""
        inside = self.rows(nodes)
        return nodes.all_rows() if inside is None else np.flatnonzero(inside)


@dataclass(frozen=True, slots=True)
class Try:
    """Place members in a domain, at least ``wanted`` of them."""

    domain: Domain
    wanted: int


def tries(
    group: Group,
    kinds: Sequence[Kind],
    needed: int,
    placed_on: Sequence[str],
    cache: Cache,
    bounds: Callable[[Part], Iterable[Amounts]],
    domain_bounds: Callable[[Part], Iterable[DomainBound]] = lambda _: (),
) -> Iterator[Try | None]:
    """Yield what to try, in order, at least one; and None after what looks at all nodes: the turn may end there.

    Of the members of all ``kinds`` as many as are ``needed`` must be placed; ``placed_on`` are the nodes of those that
    are. ``bounds`` returns what else bounds the members that each row holds, and ``domain_bounds`` what bounds those
    of a domain.
    """
    nodes, count = cache.nodes, sum(kind.number for kind in kinds)
    levels = _levels(group)
    anchors = [cache.nodes.row_of[node] for node in placed_on if node in cache.nodes.row_of]
    if anchors:
        yield from _shared(nodes, levels, anchors, count, needed, is_hard=bool(group.within))
        return
    if placed_on and group.within:
        yield Try(_none(group), needed)
        return
    # Rows that are added meanwhile are left to another decision.
    labels, room = _Labels.of(nodes, chain.from_iterable(levels[:1])), GroupRoom(count)
    for part in parts_of(kinds) if levels else ():
        held = room_for(part, nodes)
        for bound in bounds(part):
            held = np.minimum(held, bound[: len(held)])
            yield None
        of_domains = list[DomainBound]()
        for domain_bound in domain_bounds(part):
            of_domains.append(domain_bound)
            yield None
        room.add(part, held, of_domains)
    room.sums = list(sums_of(kinds, nodes)) if levels and len(kinds) > 1 else []
    for keys in levels:
        level = labels.level(keys, room)
        yield from (Try(domain, count) for domain in level.at_least(count))
        if keys[0] == group.within:
            if needed < count:
                yield from (Try(domain, needed) for domain in level.largest(needed))
            # For the reasons of its nodes: no domain may be large enough.
            yield Try(next(level.largest(0), _none(group)), needed)
    if not group.within:
        yield Try(Domain(), needed)


def labels_are_ready(group: Group, nodes: NodeColumns, slices: Slices) -> bool:
    """Make the columns of a group's labels, until the turn is over; return whether there are all."""
    for key in (*group.prefer, group.within):
        if key and not nodes.has_label_column(key):
            if slices.turn_is_over:
                return False
            nodes.label(key)
            slices.count_column(nodes.size)
    return True


def domains_within(group: Group, placed_on: Sequence[str], cache: Cache) -> Iterator[Domain]:
    """Yield the domains that may hold a group, whatever they have left; the placed members' one if there are any."""
    if not group.within:
        yield Domain()
        return
    nodes, keys = cache.nodes, (group.within,)
    anchors = [nodes.row_of[node] for node in placed_on if node in nodes.row_of]
    if anchors:
        yield from (one.domain for one in _shared(nodes, [keys], anchors, 0, 0, is_hard=True))
        return
    if placed_on:
        yield _none(group)
        return
    yield from _Labels.of(nodes, keys).level(keys, GroupRoom(0)).largest(0)


def _none(group: Group) -> Domain:
    """Return a domain without a node: where no node has the label, or those of all placed members are gone."""
    return Domain(((group.within, _NO_VALUE),))


def _levels(group: Group) -> list[tuple[str, ...]]:
    """Return the labels of each level, its own first, from narrow to wide."""
    keys = (*(key for key in group.prefer if key != group.within), *((group.within,) if group.within else ()))
    return [keys[index:] for index in range(len(keys))]


def _shared(
    nodes: NodeColumns,
    levels: Sequence[tuple[str, ...]],
    anchors: Sequence[int],
    count: int,
    needed: int,
    *,
    is_hard: bool,
) -> Iterator[Try]:
    """Yield the domains that the placed members share, from narrow to wide."""
    # All at once: a row may be another node when the next one is asked for.
    found = [[_values(nodes, keys, row) for row in anchors] for keys in levels]
    for keys, values in zip(levels, found, strict=True):
        is_last = is_hard and keys is levels[-1]
        if len(set(values)) == 1 and all(value != _NO_VALUE for _, value in values[0]):
            yield Try(Domain(values[0]), needed if is_last else count)
        elif is_last:
            # Labels have changed since: where most of the members are.
            yield Try(Domain(max(sorted(set(values)), key=values.count)), needed)
    if not is_hard:
        yield Try(Domain(), needed)


@dataclass(frozen=True, slots=True)
class _Level:
    """The domains of a level, the smallest first: how many members each could hold, and its values of each label.

    ``holds`` counts members as they are mixed in the group, and ``most`` how many of its members there may be. For each
    label: the number of each domain's value, and the values.
    """

    keys: Sequence[str]
    holds: Amounts
    most: Amounts
    values: Sequence[tuple[NDArray[np.int32], list[str | None]]]

    def at_least(self, wanted: int) -> Iterator[Domain]:
        """Yield the domains that could hold so many as they are mixed, the smallest first."""
        for number in range(int(np.searchsorted(self.holds, wanted)), len(self.holds)):
            yield self._domain(number)

    def largest(self, wanted: int) -> Iterator[Domain]:
        """Yield the domains that could hold so many of any, the largest first."""
        ascending = np.argsort(self.most, kind="stable")
        for number in ascending[self.most[ascending] >= wanted][::-1].tolist():
            yield self._domain(number)

    def _domain(self, number: int) -> Domain:
        values = [values[numbers[number]] or "" for numbers, values in self.values]
        return Domain(tuple(zip(self.keys, values, strict=True)))


def _values(nodes: NodeColumns, keys: Sequence[str], row: int) -> tuple[tuple[str, str], ...]:
    """Return the labels of a row with their values."""
    values = [nodes.label(key)[row] for key in keys]
    return tuple((key, _NO_VALUE if value is None else value) for key, value in zip(keys, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Labels:
    """Some labels of all nodes as they are now: their rows may be other nodes when a level is asked for.

    For each label: the number of each row's value, and the values.
    """

    rows: Rows
    columns: dict[str, tuple[NDArray[np.int32], list[str | None]]]

    @classmethod
    def of(cls, nodes: NodeColumns, keys: Iterable[str]) -> "_Labels":
        columns = {key: nodes.label(key) for key in keys}
        found = {key: (column.ids[: nodes.size].copy(), column.values.copy()) for key, column in columns.items()}
        return cls(nodes.all_rows(), found)

    def level(self, keys: Sequence[str], room: GroupRoom) -> _Level:
        """Return the domains of a level by how many members they could hold."""
        columns, rows = [self.columns[key] for key in keys], self.rows
        for ids, _ in columns:
            rows = rows[ids[rows] > 0]
        # One number for the values of all labels together: there are never as many rows as 64 bits hold.
        numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        for ids, values in columns:
            _, numbers = np.unique(numbers * len(values) + ids[rows], return_inverse=True)
        kinds, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        holds, most = room.of_domains(rows, which, len(kinds))
        # Of equal ones the first row decides.
        order = np.lexsort((rows[first], holds))
        firsts = rows[first][order]
        return _Level(keys, holds[order], most[order], [(ids[firsts], values) for ids, values in columns])


def hanging_on(
    refusal: Unschedulable, wanted: int, inside: Rows, placed_on: Sequence[str], nodes: NodeColumns
) -> Unschedulable:
    """Return a refusal with what the group hangs on: the member, and nodes, first those that hold none of it.

    ``inside`` are the rows on which members were tried, ``wanted`` is how many must be placed.
    """
    taken = [nodes.row_of[node] for node in placed_on]
    free = inside[~np.isin(inside, taken)]
    rows = [*free[:NAMED].tolist(), *dict.fromkeys(taken)][:NAMED]
    about = {
        "member": refusal.pod_info.pod.metadata.name,
        "fitting": len(placed_on),
        "wanted": wanted,
        "nodes": [nodes.names[row] for row in rows],
    }
    return replace(refusal, why={**refusal.why, "group": about})
