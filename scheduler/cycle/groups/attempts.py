"""What a decision about a group tries, in order: topology domains, networks, and orders of the members. Pure.

What it is: the domains of `scheduler.cycle.groups.domains`, and before them, where a rule of the members keeps them
together by a label, the domains of that label; in each the networks of `scheduler.cycle.groups.rails`; on
each the members as they come and, where they differ, by their size, for what is large finds room last. Where fewer
members are needed than there are, the small ones come first in the end: the most of them fit. Then unequal members, and
equal ones with two rules among them, are searched for on each of these networks beyond such orders
(`scheduler.cycle.groups.backtracking`). A decision that has tried as much as it may leaves the rest to another one,
which goes on with the domain that was being tried.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from scheduler.cache.cache import AssignedPod, Cache
from scheduler.cache.column import Amounts
from scheduler.cache.groups.sources import Group
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.groups.domain_bounds import CommonNetworks, DomainBound, of_apart, of_spread
from scheduler.cycle.groups.domains import Try, tries
from scheduler.cycle.groups.group_room import MANY, Kind, Part
from scheduler.cycle.groups.members import apart_by, are_interchangeable, by_size, is_spread, requests_of, together_by
from scheduler.cycle.groups.network_room import NetworkRooms
from scheduler.cycle.groups.rails import Networks, choices, networks_in, on_rails
from scheduler.cycle.groups.search import Attempt, Attempts, GroupSearch
from scheduler.cycle.groups.vf_room import VfRoom, is_selective
from scheduler.placement.vf_accounting import FreeVfs
from scheduler.plugins import pod_topology_spread


class GroupAttempts:
    """Lists what there is to try, once for each decision."""

    def __init__(self, cache: Cache, scheduling_cycle: SchedulingCycle) -> None:
        self._cache, self._cycle = cache, scheduling_cycle
        self._vf_room = VfRoom(cache.nodes)
        self._common_networks = CommonNetworks(cache.nodes)

    def begin(self, search: GroupSearch) -> None:
        """Give a search the list of all that it tries."""
        search.later = _told_last(self._from_first_domain(search))

    def _from_first_domain(self, search: GroupSearch) -> Attempts:
        """Yield all attempts from a search's first domain on; from the first of all if there are fewer now."""
        placed_on = [assigned.node for assigned in search.before]
        bounds, of_domains = partial(self._bounds, search), partial(self._domain_bounds, search)
        counts = Counter(one.shape for one in search.waiting)
        kinds = [Kind(one, rows, counts[one.shape]) for one, rows in search.judged]
        attempts = partial(self._attempts, search, self._nominated(search))
        groups = [search.group]
        if not placed_on and (key := together_by(search.waiting)):
            # The first member that is placed binds the others to where it is.
            groups.insert(0, _within(search.group, key))
        for first in dict.fromkeys((search.first_domain, 0)):
            found = (
                one
                for group in groups
                for one in tries(group, kinds, search.needed, placed_on, self._cache, bounds, of_domains)
            )
            search.first_domain = search.next_domain = first
            number = 0
            for one in found:
                if one is None:
                    yield None
                    continue
                if number >= first:
                    yield from attempts(one)
                number += 1
            if number > first:
                return

    def _bounds(self, search: GroupSearch, part: Part) -> Iterator[Amounts]:
        """Yield upper bounds of the members of a part on each row, besides what their sums say."""
        nodes, members = self._cache.nodes, [kind.member for kind in part]
        for key in apart_by(search.waiting):
            yield np.where(nodes.label(key).ids[: nodes.size] > 0, 1, MANY)
        if search.group.rails == "index":
            members = list(on_rails(members, search.group, ()))
        requests = tuple(one.request for one in members if one.request is not None)
        if len(requests) == len(members) and any(map(is_selective, requests)):
            yield self._vf_room.of(requests, search.slices.count_networks)

    def _domain_bounds(self, search: GroupSearch, part: Part) -> Iterator[DomainBound]:
        """Yield upper bounds of the members of a part in each domain."""
        nodes = self._cache.nodes
        yield from (of_apart(key, nodes) for key in apart_by(search.waiting))
        if len(search.shapes) == 1 == len({one.spread for one in search.waiting}):
            spread = pod_topology_spread.pre_filter(part[0].member, nodes, self._cache.pod_counts)
            for constraint, now in spread.hard() if spread is not None and is_spread(part[0].member) else ():
                if all(constraint.selector.matches(one.labels) for one in search.waiting):
                    yield of_spread(now)
        if search.group.rails == "same":
            requests = tuple(kind.member.request for kind in part)
            yield self._common_networks.of(requests, search.slices.count_networks)

    def _nominated(self, search: GroupSearch) -> list[AssignedPod]:
        """Return the members that are nominated to nodes, as they are counted there."""
        nominated = (self._cycle.nominated(one.uid) for one in search.waiting)
        return [one for one in nominated if one is not None]

    def _attempts(self, search: GroupSearch, nominated: Sequence[AssignedPod], one: Try) -> Attempts:
        """Yield the attempts of a try: on each choice of networks all orders of the members, then a search on each."""
        wants_most, orders = one.wanted < len(search.waiting), [search.waiting]
        if len(search.shapes) > 1:
            orders.append(by_size(search.waiting))
            if wants_most:
                # Of what is small the most fit.
                orders.append(orders[-1][::-1])
        # A domain of both labels is tried for all of the members, not for as few as are needed.
        is_within_both = bool(search.group.within and together_by(search.waiting))
        is_searched = is_within_both or not are_interchangeable(search.waiting)
        searches = list[Attempt]()
        for chosen in self._networks(search, nominated, one, wants_most=wants_most):
            if chosen is None:
                yield None
                continue
            networks, most = chosen
            yield from (Attempt(one, networks, order, most) for order in orders)
            if is_searched:
                searches.append(Attempt(one, networks, search.waiting, most, is_search=True))
        yield from searches

    def _networks(
        self, search: GroupSearch, nominated: Sequence[AssignedPod], one: Try, *, wants_most: bool
    ) -> Iterator[tuple[Networks, int] | None]:
        """Yield the networks to try in the domain of a try, each with how many members they could hold at the most.

        And None where the turn may end.
        """
        nodes = self._cache.nodes

        def free_vfs() -> Iterator[FreeVfs]:
            inside = one.domain.row_numbers(nodes).tolist()
            passed = frozenset(row for _, rows in search.judged for row in rows.tolist())
            return (nodes.free_vfs_of_row[row] for row in inside if row in passed)

        room = NetworkRooms(requests_of(search.waiting), one.wanted, free_vfs)
        there = partial(networks_in, one.domain, nodes)
        inside, count = self._inside(one, nominated), len(search.waiting)
        for networks in choices(
            search.group, search.waiting, search.before, there, room, inside, wants_most=wants_most
        ):
            if networks is None:
                yield None
                search.slices.count_networks(len(one.domain.row_numbers(nodes)))
                continue
            yield networks, min(count, room.most_on(networks)) if wants_most and networks else count

    def _inside(self, one: Try, nominated: Sequence[AssignedPod]) -> list[AssignedPod]:
        """Return those that are nominated to a node in the domain of a try."""
        row_of, flags = self._cache.nodes.row_of, one.domain.rows(self._cache.nodes) if nominated else None
        known = [each for each in nominated if each.node in row_of]
        return known if flags is None else [each for each in known if flags[row_of[each.node]]]


def _told_last(attempts: Attempts) -> Attempts:
    """Yield attempts, a search after which nothing comes marked as the last one."""
    held: Attempt | None = None
    for one in attempts:
        if one is not None and held is not None:
            yield held
            held = None
        if one is not None and one.is_search:
            held = one
        else:
            yield one
    if held is not None:
        yield replace(held, is_last=True)


def _within(group: Group, key: str) -> Group:
    """Return a group whose members are tried in the domains of one more label."""
    if not group.within:
        return replace(group, within=key)
    return group if key in (group.within, *group.prefer) else replace(group, prefer=(key, *group.prefer))


def go_on_from(search: GroupSearch) -> int:
    """Return the number of the domain from which another decision may go on; 0 if there is nothing left to try."""
    if search.next is None:
        return 0
    if (now := search.next_domain - 1) > search.first_domain:
        return now
    # This one alone has taken all that a decision may try.
    others = (one for one in search.later or () if one is not None and one.trying is not search.trying)
    is_other = search.next.trying is not search.trying or next(others, None) is not None
    return search.next_domain if is_other else 0
