"""Choose the topology domains in which to try a group, and their order. Pure.

Domains: a domain is the set of nodes with one value of a level's label and of the labels of all wider levels, because
rack names repeat. Nodes without the label of a wider level that is only preferred form one domain there. ``prefer``
gives the levels from narrow to wide, and ``within`` the widest one. Without ``within`` the widest level is the whole
cluster.

Order: on each level, try the domains that admit the whole group by plain sums (`scheduler.cycle.groups.member_room`),
the smallest first. On the widest level, finally try those that admit at least the needed members, the largest first. If
no narrower domain admits the group, fill the tried domain with as few narrower domains as possible, one after another,
and each of these likewise. Consecutive ranks are then together on every level. Of equally few domains, choose those
with the least room left over.

Correctness: each tried domain is evaluated exactly. While members are placed, only the domains that contain them count:
the narrowest level that they share, and wider levels, where the narrower domains that have members are filled first.
While none of their nodes is known, no member joins them in a domain that all must share.

Cost: some arrays over all nodes for each shape of members and each level.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts
from scheduler.cache.groups.group_sources import Group
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.member_room import MemberRoom

# No node has this value: a label's value may be empty, and contains no slash.
_NO_VALUE = "/"


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with these values of some labels, the narrowest level first; without labels the whole cluster."""

    labels: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """Return the domain as text; empty for the whole cluster and for no node."""
        if not self.labels or self.labels[0][1] == _NO_VALUE:
            return ""
        return f"{self.labels[0][0]} {self.labels[0][1]!r}"

    def rows(self, nodes: NodeColumns) -> Flags | None:
        """Return which rows are in the domain now; None for all."""
        if not self.labels:
            return None
        inside: Flags = nodes.valid[: nodes.size].copy()
        for number, (key, value) in enumerate(self.labels):
            column = nodes.label(key)
            is_without = number > 0 and value == _NO_VALUE
            inside &= column.ids[: nodes.size] == 0 if is_without else column.among((value,), slice(nodes.size))
        return inside

    def row_numbers(self, nodes: NodeColumns) -> Rows:
        inside = self.rows(nodes)
        return nodes.all_rows() if inside is None else np.flatnonzero(inside)


EVERYWHERE = Domain()


def _no_parts() -> Sequence[Flags]:
    return ()


@dataclass(frozen=True, slots=True)
class Target:
    """Place at least ``wanted`` members in a domain; ``parts`` returns the narrower domains to fill first."""

    domain: Domain
    wanted: int
    parts: Callable[[], Sequence[Flags]] = _no_parts


def targets(demand: GroupDemand, room: MemberRoom, cache: Cache) -> Iterator[Target]:
    """Yield the targets to try in order, at least one."""
    nodes, group, min_members, count = cache.nodes, demand.group, demand.min_members, len(demand.members)
    levels = _levels(group)
    anchors = [
        nodes.row_of[assigned_pod.node] for assigned_pod in demand.placed_pods if assigned_pod.node in nodes.row_of
    ]
    if anchors:
        parts = partial(_parts_beside, nodes, group, room, anchors, count)
        yield from _shared_domains(nodes, group, anchors, count, min_members, parts)
        return
    if demand.placed_pods and group.within:
        yield Target(_empty_domain(group), min_members)
        return
    level: _Level | None = None
    for keys in levels:
        level = _Level(keys, nodes, room, group.within, level)
        yield from map(partial(level.target, count=count), level.at_least(count))
        if keys[0] == group.within:
            if min_members < count:
                yield from map(partial(level.target, count=min_members), level.largest(min_members))
            # Its nodes give the reasons: possibly no domain is large enough.
            first = next(level.largest(0), None)
            yield Target(_empty_domain(group), min_members) if first is None else level.target(first, min_members)
    if not group.within:
        yield Target(EVERYWHERE, min_members, partial(level.parts, None, count) if level is not None else _no_parts)


def domains_within(group: Group, placed_on: Sequence[str], cache: Cache) -> Iterator[Domain]:
    """Yield the domains that may hold a group, whatever room they have; if members are placed, only their domain."""
    if not group.within:
        yield EVERYWHERE
        return
    nodes = cache.nodes
    anchors = [nodes.row_of[node] for node in placed_on if node in nodes.row_of]
    if anchors:
        yield from (target.domain for target in _shared_domains(nodes, replace(group, prefer=()), anchors, 0, 0))
        return
    if placed_on:
        yield _empty_domain(group)
        return
    values = nodes.label(group.within)
    in_order = dict.fromkeys(values[row] for row in nodes.all_rows().tolist())
    yield from (Domain(((group.within, value),)) for value in in_order if value is not None)


def _empty_domain(group: Group) -> Domain:
    """Return a domain without nodes: no node has the label, or the nodes of all placed members are gone."""
    return Domain(((group.within, _NO_VALUE),))


def _levels(group: Group) -> list[tuple[str, ...]]:
    """Return the labels of each level from narrow to wide; the level's own label is first."""
    keys = (*(key for key in group.prefer if key != group.within), *((group.within,) if group.within else ()))
    return [keys[index:] for index in range(len(keys))]


def _shared_domains(
    nodes: NodeColumns,
    group: Group,
    anchors: Sequence[int],
    count: int,
    min_members: int,
    parts: Callable[[Sequence[tuple[str, ...]], Domain], Sequence[Flags]] = lambda _levels, _domain: (),
) -> Iterator[Target]:
    """Yield the domains that the placed members share, from narrow to wide.

    ``parts`` takes the narrower levels and the domain, and returns the domains to fill first.
    """
    levels = _levels(group)
    for number, keys in enumerate(levels):
        values = [_values(nodes, keys, row) for row in anchors]
        is_last = keys[0] == group.within
        if len(set(values)) == 1 and not _lacks_label(values[0], group):
            domain = Domain(values[0])
            yield Target(domain, min_members if is_last else count, partial(parts, levels[:number], domain))
        elif is_last:
            # Labels have changed since then: choose the domain with most members.
            yield Target(Domain(max(sorted(set(values)), key=values.count)), min_members)
    if not group.within:
        yield Target(EVERYWHERE, min_members, partial(parts, levels, EVERYWHERE))


def _lacks_label(values: Sequence[tuple[str, str]], group: Group) -> bool:
    """Return whether a row is in no domain of a level because it lacks the level's label or that of ``within``."""
    return values[0][1] == _NO_VALUE or (bool(group.within) and values[-1][1] == _NO_VALUE)


def _parts_beside(
    nodes: NodeColumns,
    group: Group,
    room: MemberRoom,
    anchors: Sequence[int],
    count: int,
    levels: Sequence[tuple[str, ...]],
    domain: Domain,
) -> Sequence[Flags]:
    """Return the parts of a domain to fill when some members are placed: first the domains that have members, narrow
    ones first.

    Domains with most members come first; then the fewest other domains.
    """
    parts, level = list[Flags](), None
    for keys in levels:
        counts = Counter(values for row in anchors if not _lacks_label(values := _values(nodes, keys, row), group))
        for values, _ in counts.most_common():
            flags = Domain(values).rows(nodes)
            assert flags is not None, "a domain of a level is not the whole cluster"
            parts += [*(level.parts(flags, count) if level is not None else ()), flags]
        level = _Level(keys, nodes, room, group.within, level)
    return [*parts, *(level.parts(domain.rows(nodes), count) if level is not None else ())]


def _values(nodes: NodeColumns, keys: Sequence[str], row: int) -> tuple[tuple[str, str], ...]:
    values = [nodes.label(key)[row] for key in keys]
    return tuple((key, _NO_VALUE if value is None else value) for key, value in zip(keys, values, strict=True))


class _Level:
    """The domains of one level with the number of members that each admits and its rows, the smallest first."""

    def __init__(
        self,
        keys: Sequence[str],
        nodes: NodeColumns,
        room: MemberRoom,
        within: str,
        narrower: "_Level | None" = None,
    ) -> None:
        self._keys, self._nodes, self._narrower = keys, nodes, narrower
        rows = nodes.all_rows()
        for key in {keys[0], within or keys[0]}:
            rows = rows[nodes.label(key).ids[rows] > 0]
        # One number encodes the values of all labels: there are always fewer rows than 2^64.
        numbers: NDArray[np.int64] = np.zeros(len(rows), np.int64)
        for index, key in enumerate(keys):
            if index > 1:
                _, numbers = np.unique(numbers, return_inverse=True)
            column = nodes.label(key)
            numbers = numbers * len(column.values) + column.ids[rows]
        kinds, first, domain_of_row = np.unique(numbers, return_index=True, return_inverse=True)
        admits = room.of_all(rows, domain_of_row, len(kinds))
        # Of equal domains the first row decides.
        order = np.lexsort((rows[first], admits))
        self._room, self._rows, self._domain_of_row, self._kinds = room, rows, domain_of_row, order
        self._first: Rows = rows[first][order]
        self._admits: Amounts = admits[order]

    @cached_property
    def _admits_any(self) -> Amounts:
        """How many of the group's members each domain admits if other members are left out."""
        return self._room.of_any(self._rows, self._domain_of_row, len(self._kinds))[self._kinds]

    def at_least(self, count: int) -> Iterator[int]:
        """Yield the domains that admit this many members, the smallest first."""
        yield from range(int(np.searchsorted(self._admits, count)), len(self._admits))

    def largest(self, count: int) -> Iterator[int]:
        """Yield the domains that admit this many members of any shape, the largest first."""
        order = np.argsort(self._admits_any, kind="stable")
        yield from order[self._admits_any[order] >= count][::-1].tolist()

    def domain(self, number: int) -> Domain:
        return Domain(_values(self._nodes, self._keys, int(self._first[number])))

    def target(self, number: int, count: int) -> Target:
        if self._narrower is None:
            return Target(self.domain(number), count)
        return Target(self.domain(number), count, partial(self._narrower.parts, self._flags(number), count))

    def parts(self, inside: Flags | None, count: int) -> list[Flags]:
        """Return the domains to fill one after another with this many members, each after the narrower domains in it.

        If ``inside`` is given, these are the fewest domains within that wider domain.
        """
        parts = list[Flags]()
        for number, share in self._fewest(inside, count):
            flags = self._flags(number)
            parts += self._narrower.parts(flags, share) if self._narrower is not None else ()
            parts.append(flags)
        return parts

    def _fewest(self, inside: Flags | None, count: int) -> Iterator[tuple[int, int]]:
        """Yield the fewest domains that admit this many members, or all if none suffice, the largest first, with their
        shares.

        Each one is the smallest that leaves enough room for the rest, so a domain that fits exactly comes before
        others.
        """
        numbers = np.argsort(self._admits_any, kind="stable")
        numbers = numbers[self._admits_any[numbers] > 0]
        if inside is not None:
            numbers = numbers[inside[self._first[numbers]]]
        admits = self._admits_any[numbers]
        count = min(count, int(admits.sum()))
        few = int(np.searchsorted(np.cumsum(admits[::-1]), count)) + 1 if count else 0
        chosen, missing = list[int](), count
        for others in reversed(range(few)):
            most_of_others = int(admits[len(admits) - others :].sum())
            position = min(int(np.searchsorted(admits, missing - most_of_others)), len(admits) - others - 1)
            chosen.append(int(numbers[position]))
            missing -= int(admits[position])
            numbers, admits = np.delete(numbers, position), np.delete(admits, position)
        for number in sorted(chosen, key=lambda one: -int(self._admits_any[one])):
            share = min(int(self._admits_any[number]), count)
            count -= share
            yield number, share

    def _flags(self, number: int) -> Flags:
        return self._nodes.flags(self._rows[self._domain_of_row == self._kinds[number]])
