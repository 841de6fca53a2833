"""Choose the topology domains in which to try a group, and their order. Pure.

A domain is the set of nodes with one value of a level's label and of the labels of all wider levels, because rack names
repeat. Nodes without the label of a wider level that is only preferred form one domain there. ``prefer`` gives the
levels from narrow to wide, and ``within`` the widest one; without it that is the whole cluster.

On each level, try the domains that admit the whole group by plain sums (`MemberRoom`), the smallest first. On the
widest level, finally try those that admit at least the needed members, the largest first. Fill a domain with as few
narrower ones as possible, one after another, and each of these likewise: consecutive ranks are then together.

While members are placed, only the domains that contain them count: the narrowest level that they share, and wider
levels, where the narrower domains that have members are filled first. While none of their nodes is known, no member
joins them in a domain that all must share.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns, Rows
from scheduler.cycle.filters import Among
from scheduler.cycle.groups.group_demand import GroupDemand
from scheduler.cycle.groups.member_room import MemberRoom, one_domain
from scheduler.kube.group import Group

# No node has this value: a label's value may be empty, and contains no slash.
_NO_VALUE = "/"
# The values of some labels, the narrowest level first.
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """The nodes with these values of some labels; without labels the whole cluster."""

    labels: _Labels = ()

    @property
    def text(self) -> str:
        """Return the domain as text; empty for the whole cluster and for no node."""
        if not self.labels or self.labels[0][1] == _NO_VALUE:
            return ""
        return f"{self.labels[0][0]} {self.labels[0][1]!r}"

    def flags(self, nodes: NodeColumns) -> Flags:
        """Return for each row whether it is in the domain now."""
        inside: Flags = nodes.valid[: nodes.size].copy()
        for number, (key, value) in enumerate(self.labels):
            column = nodes.label(key)
            is_without = number > 0 and value == _NO_VALUE
            inside &= column.ids[: nodes.size] == 0 if is_without else column.among((value,), slice(nodes.size))
        return inside

    def rows(self, nodes: NodeColumns) -> Rows:
        return np.flatnonzero(self.flags(nodes))

    def among(self, nodes: NodeColumns, within: str = "") -> Among | None:
        """Return the rows, None for all; ``within`` is the label whose value all members must share."""
        return Among(self.flags(nodes), within) if self.labels else None


EVERYWHERE = Domain()


@dataclass(frozen=True, slots=True)
class Target:
    """Place at least ``needed_count`` in a domain; ``parts`` returns the narrower domains to fill first."""

    domain: Domain
    needed_count: int
    parts: Callable[[], Sequence[Flags]] = list


def targets(demand: GroupDemand, room: MemberRoom) -> Iterator[Target]:
    """Yield the targets to try in order, at least one."""
    group, needed_count, count = demand.group, demand.needed_count, len(demand.members)
    anchors = rows_of([pod.node for pod in demand.placed_pods], room.nodes)
    if demand.placed_pods and not anchors and group.within:
        yield Target(_empty_domain(group), needed_count)
        return
    level: _Level | None = None
    for keys in _levels(group):
        is_last = keys[0] == group.within
        if anchors:
            labels, is_shared = _common_labels(room.nodes, keys, anchors)
            # Without the level's label or that of ``within``, a row is in no domain of the level.
            lacks_label = _NO_VALUE in (labels[0][1], labels[-1 if group.within else 0][1])
            if is_last or (is_shared and not lacks_label):
                domain = Domain(labels)
                parts = partial(_parts, level, domain.flags(room.nodes), count)
                yield Target(domain, needed_count if is_last else count, parts)
        level = _Level(keys, room, group.within, anchors, level)
        if anchors:
            continue
        yield from map(partial(level.target, count=count), level.smallest(count))
        if is_last:
            if needed_count < count:
                yield from map(partial(level.target, count=needed_count), level.largest(needed_count))
            # Its nodes give the reasons: possibly no domain is large enough.
            first = next(level.largest(0), None)
            yield Target(_empty_domain(group), needed_count) if first is None else level.target(first, needed_count)
    if not group.within:
        yield Target(EVERYWHERE, needed_count, partial(_parts, level, None, count))


def domains_within(group: Group, node_names: Sequence[str], nodes: NodeColumns) -> Iterator[Domain]:
    """Yield the domains that may hold a group, whatever room they have; if members are placed, only their domain."""
    if not group.within:
        yield EVERYWHERE
    elif anchors := rows_of(node_names, nodes):
        yield Domain(_common_labels(nodes, (group.within,), anchors)[0])
    elif node_names:
        yield _empty_domain(group)
    else:
        values = nodes.label(group.within)
        in_order = dict.fromkeys(values[row] for row in nodes.all_rows().tolist())
        yield from (Domain(((group.within, value),)) for value in in_order if value is not None)


def rows_of(node_names: Iterable[str], nodes: NodeColumns) -> list[int]:
    return [nodes.row_of[name] for name in node_names if name in nodes.row_of]


def _empty_domain(group: Group) -> Domain:
    """Return a domain without nodes: no node has the label, or the nodes of all placed members are gone."""
    return Domain(((group.within, _NO_VALUE),))


def _levels(group: Group) -> list[tuple[str, ...]]:
    """Return the labels of each level from narrow to wide; the level's own label is first."""
    keys = (*(key for key in group.prefer if key != group.within), *((group.within,) if group.within else ()))
    return [keys[index:] for index in range(len(keys))]


def _labels(nodes: NodeColumns, keys: Sequence[str], row: int) -> _Labels:
    values = [nodes.label(key)[row] for key in keys]
    return tuple((key, _NO_VALUE if value is None else value) for key, value in zip(keys, values, strict=True))


def _common_labels(nodes: NodeColumns, keys: Sequence[str], rows: Sequence[int]) -> tuple[_Labels, bool]:
    """Return the values that most of these rows have, and whether all of them do."""
    labels = [_labels(nodes, keys, row) for row in rows]
    return max(sorted(set(labels)), key=labels.count), len(set(labels)) == 1


class _Level:
    """The domains of one level with the number of members that each admits and its rows, the smallest first."""

    def __init__(
        self, keys: Sequence[str], room: MemberRoom, within: str, anchors: Sequence[int], narrower: "_Level | None"
    ) -> None:
        self._keys, self._room, self._anchors, self.narrower, nodes = keys, room, anchors, narrower, room.nodes
        rows = nodes.all_rows()
        for key in {keys[0], within or keys[0]}:
            rows = rows[nodes.label(key).ids[rows] > 0]
        partition, first = one_domain(rows), rows
        for key in keys:
            partition, first = partition.split(nodes, key)
        self._partition = partition
        counts = room.of_all(self._partition)
        # Of equal domains the first row decides.
        self._order = np.lexsort((rows[first], counts))
        self._first: Rows = rows[first][self._order]
        self._counts: Amounts = counts[self._order]

    @cached_property
    def _partial_counts(self) -> Amounts:
        """How many of the group's members each domain admits if other members are left out."""
        return self._room.of_any(self._partition)[self._order]

    def member_domains(self, inside: Flags | None) -> Iterator[int]:
        """Yield the domains that have placed members, those with most first."""
        rows, domain_of_row, _ = self._partition
        number_of_row = np.full(self._room.nodes.size, -1)
        number_of_row[rows] = np.argsort(self._order)[domain_of_row]
        counts = Counter(number_of_row[list(self._anchors)].tolist())
        for number, _ in counts.most_common():
            if number >= 0 and (inside is None or inside[self._first[number]]):
                yield number

    def smallest(self, count: int) -> Iterator[int]:
        yield from range(int(np.searchsorted(self._counts, count)), len(self._counts))

    def largest(self, count: int) -> Iterator[int]:
        order = np.argsort(self._partial_counts, kind="stable")
        yield from order[self._partial_counts[order] >= count][::-1].tolist()

    def target(self, number: int, count: int) -> Target:
        domain = Domain(_labels(self._room.nodes, self._keys, int(self._first[number])))
        return Target(domain, count, lambda: _parts(self.narrower, self.flags(number), count))

    def flags(self, number: int) -> Flags:
        return self._room.nodes.flags(self._partition.rows[self._partition.domain_of_row == self._order[number]])

    def fewest(self, inside: Flags | None, count: int) -> Iterator[tuple[int, int]]:
        """Yield the fewest domains that admit this many members, the largest first, with their shares.

        Each is the smallest that leaves enough room for the rest, so a domain that fits exactly comes before others.
        """
        numbers = np.argsort(self._partial_counts, kind="stable")
        numbers = numbers[self._partial_counts[numbers] > 0]
        if inside is not None:
            numbers = numbers[inside[self._first[numbers]]]
        counts = self._partial_counts[numbers]
        rest = count = min(count, int(counts.sum()))
        domain_count = int(np.searchsorted(np.cumsum(counts[::-1]), count)) + 1 if count else 0
        choice = list[int]()
        for later_count in reversed(range(domain_count)):
            later_room = int(counts[len(counts) - later_count :].sum())
            position = min(int(np.searchsorted(counts, rest - later_room)), len(counts) - later_count - 1)
            choice.append(int(numbers[position]))
            rest -= int(counts[position])
            numbers, counts = np.delete(numbers, position), np.delete(counts, position)
        for number in sorted(choice, key=lambda number: -int(self._partial_counts[number])):
            share = min(int(self._partial_counts[number]), count)
            count -= share
            yield number, share


def _parts(level: _Level | None, inside: Flags | None, count: int) -> list[Flags]:
    """Return the domains to fill, ``inside`` a wider one if given: those that have members, the narrow ones of all
    levels first, then the fewest others.
    """
    return [*_parts_with_members(level, inside, count), *_fewest_parts(level, inside, count)]


def _parts_with_members(level: _Level | None, inside: Flags | None, count: int) -> list[Flags]:
    if level is None:
        return []
    parts = _parts_with_members(level.narrower, inside, count)
    for number in level.member_domains(inside):
        flags = level.flags(number)
        parts += [*_fewest_parts(level.narrower, flags, count), flags]
    return parts


def _fewest_parts(level: _Level | None, inside: Flags | None, count: int) -> list[Flags]:
    """Return the fewest domains of a level, each after the narrower ones in it."""
    parts = list[Flags]()
    if level is None:
        return parts
    for number, share in level.fewest(inside, count):
        flags = level.flags(number)
        parts += [*_fewest_parts(level.narrower, flags, share), flags]
    return parts
