"""Whether enough members could have their interfaces on some networks, by sums: an upper bound. Pure.

What it is: for each network and node, what its PFs have left: VFs, Mb/s, and how many VFs each of a member's interfaces
could have, by what it selects and its rate. All PFs of all nodes are one array, sorted by their networks.

Why it is right: a node holds no more members than the least of these numbers. So networks that are left out for it hold
too few members in truth too. Only the first interfaces are judged, those that all members have. What is not judged,
for what it would cost, counts as enough.

What it costs: nothing before it is asked. Then a look at each PF, some 4 us a node, and array operations over the nodes
for each question, `_MOST_COMPARED` numbers in all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain, product
from operator import attrgetter

import numpy as np

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest, VfRequest
from scheduler.cache.column import Amounts
from scheduler.placement.assign import demands_on
from scheduler.placement.vf_accounting import FreeVfs

# A group whose members have more different requests, or more interfaces, is not judged.
_MOST_REQUESTS, _MOST_INTERFACES = 8, 62
# Different PFs of nodes that are judged by what a request selects; of others each could give any interface.
_MOST_PFS = 64
# Some 10 ms; a question costs as much as with so many nodes at least.
_MOST_COMPARED, _FEW = 3_000_000, 1_000
# Of more choices of networks in all it is judged by each network how many members a domain could hold.
_MOST_CHOICES = 32
# More members than any node holds.
_MANY = 1 << 40
# How often the members that a node holds are counted again by what each PF can give so many; a bound each time.
_NARROWED = 3


@dataclass(frozen=True, slots=True)
class _Pfs:
    """All PFs of all nodes in the order of their networks, each with its node's number.

    ``starts`` says where each network begins and ends, ``of_node`` which PFs a node has, and ``places`` where they are,
    one node's after another's from ``begins`` on.
    """

    of_node: list[tuple[Pf, ...]]
    begins: list[int]
    places: Amounts
    nodes: Amounts
    vfs: Amounts
    mbps: Amounts
    able: Amounts
    starts: dict[str, slice]
    node_count: int


class NetworkRoom:
    """What nodes have left on each network for at least ``wanted`` members with these requests."""

    def __init__(
        self,
        requests: Sequence[PodRequest | None],
        wanted: int,
        free_vfs: Callable[[], Iterable[FreeVfs]],
        network_of: Callable[[Pf], str] = attrgetter("network"),
    ) -> None:
        self._network_of = network_of
        self._requests = [one for one in requests if one is not None]
        self._wanted, self._free_vfs, self._compared = wanted, free_vfs, 0
        self._depth = min((len(one.interfaces) for one in self._requests), default=0)
        if len(self._requests) < len(requests) or len(requests) > _MOST_REQUESTS or self._depth > _MOST_INTERFACES:
            self._depth = 0
        interfaces = [one.interfaces[: self._depth] for one in self._requests]
        self._rates = [min(one.min_tx_rate for one in each) for each in zip(*interfaces, strict=True)]
        self._known_pfs: _Pfs | None = None
        self._known_giving = dict[int, frozenset[str]]()
        self._known_together: dict[str, list[frozenset[str]]] | None = None

    def look(self) -> None:
        """Look at what the nodes have left, before it is asked for."""
        if self._depth:
            self._pfs()

    def renew(self, changed: Iterable[tuple[int, FreeVfs]]) -> bool:
        """Take in what some nodes have left by now; return whether that is possible: their PFs must be the same."""
        pfs, self._compared = self._pfs(), 0
        self._known_giving.clear()
        for node, free_vfs in changed:
            if node >= pfs.node_count or pfs.of_node[node] is not free_vfs.pfs:
                return False
            for place, left in zip(
                pfs.places[pfs.begins[node] : pfs.begins[node + 1]], free_vfs.capacities, strict=True
            ):
                pfs.vfs[place], pfs.mbps[place] = left.vfs, max(left.mbps, 0)
        return True

    def giving(self, index: int, networks: Sequence[str]) -> Sequence[str]:
        """Return those of some networks on which enough members could have this interface."""
        if index >= self._depth:
            return networks
        giving = self._giving(index)
        return [one for one in networks if one in giving]

    def _giving(self, index: int) -> frozenset[str]:
        """Return the networks on which enough members could have an interface: all at once, for they may be many."""
        found = self._known_giving.get(index)
        if found is None:
            starts = self._pfs().starts
            begins = [there.start for there in starts.values()]
            sums = np.add.reduceat(self._by_pf(index, slice(None)), begins).tolist() if begins else []
            found = frozenset(one for one, most in zip(starts, sums, strict=True) if most >= self._wanted)
            self._known_giving[index] = found
        return found

    def could_hold(self, networks: Sequence[str]) -> bool:
        """Return whether enough members could have their first interfaces on these."""
        judged = frozenset(networks[: self._depth])
        if judged and not any(judged <= on_one for on_one in self._together().get(next(iter(judged)), ())):
            return False
        return self.most_on(networks) >= self._wanted

    def _together(self) -> dict[str, list[frozenset[str]]]:
        """Return for each network the sets of networks that nodes with it have."""
        if self._known_together is None:
            # Nodes of one model share their PFs.
            models = {id(pfs): pfs for pfs in self._pfs().of_node}
            self._known_together = {}
            for on_one in {frozenset(map(self._network_of, pfs)) for pfs in models.values()}:
                for network in on_one:
                    self._known_together.setdefault(network, []).append(on_one)
        return self._known_together

    def most_on(self, networks: Sequence[str]) -> int:
        """Return how many members could have their first interfaces on these at the most."""
        found = self._by_choice(networks)
        return _MANY if found is None else int(found.sum())

    def _by_choice(self, networks: Sequence[str]) -> Amounts | None:
        """Return how many members each node could hold on these networks; None where that is not judged."""
        judged = networks[: self._depth]
        if not judged or self._compared >= _MOST_COMPARED:
            return None
        room = [self._gives(index, network) for index, network in enumerate(judged)]
        for network, uses in Counter(judged).items():
            if uses == 1:
                continue
            pfs, there = self._pfs(), self._there(network)
            room.append(self._by_node(there, pfs.vfs) // uses)
            if rate := sum(one for one, on in zip(self._rates, judged, strict=False) if on == network):
                room.append(self._by_node(there, pfs.mbps) // rate)
        return reduce(np.minimum, room)

    def most_in(self, domains: Amounts, count: int, room: Amounts) -> Amounts:
        """Return how many members each domain could hold whose k-th interfaces all lie on one network.

        ``domains`` is the number of each node's domain, of which there are ``count``, -1 for none; ``room`` is how many
        members each node holds.
        """
        if not self._depth:
            return np.full(count, _MANY)
        inside = domains >= 0
        if len(self._pfs().starts) ** self._depth > _MOST_CHOICES:
            return self._most_by_network(domains, count, room)
        most = np.zeros(count, np.int64)
        for networks in product(self._pfs().starts, repeat=self._depth):
            held = self._by_choice(networks)
            held = room if held is None else np.minimum(held, room)
            most = np.maximum(most, np.bincount(domains[inside], held[inside], count).astype(np.int64))
        return most

    def _most_by_network(self, domains: Amounts, count: int, room: Amounts) -> Amounts:
        """Return a bound by what each network of a domain gives: for each interface, and for all of them."""
        pfs = self._pfs()
        lengths = [there.stop - there.start for there in pfs.starts.values()]
        pairs = np.repeat(np.arange(len(lengths)), lengths) * pfs.node_count + pfs.nodes
        # PFs are in the order of their networks, and of one network in that of the nodes.
        firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
        nodes = pfs.nodes[firsts]
        # The nodes of no domain are those of one more: -1 is the last one by its remainder.
        numbers, which = np.unique(pairs[firsts] // pfs.node_count * (count + 1) + domains[nodes], return_inverse=True)
        of_domain = numbers % (count + 1)
        is_one = domains[nodes] >= 0

        def given(amounts: Amounts, most: Amounts) -> Amounts:
            found = np.minimum(np.add.reduceat(amounts, firsts), most) * is_one
            return np.bincount(which, found, len(numbers)).astype(np.int64)

        found = np.full(count + 1, _MANY)
        for index in {self._kind(index): index for index in range(self._depth)}.values():
            most = np.zeros(count + 1, np.int64)
            np.maximum.at(most, of_domain, given(self._by_pf(index, slice(None)), room[nodes]))
            found = np.minimum(found, most)
        vfs, low = given(pfs.vfs, room[nodes] * self._depth), np.zeros(count + 1, np.int64)
        high = np.minimum(found, int(vfs.max(initial=0)))
        while (low < high).any():
            middle = (low + high + 1) // 2
            uses = np.bincount(of_domain, vfs // np.maximum(middle, 1)[of_domain], count + 1)
            serves = uses >= self._depth
            low, high = np.where(serves, middle, low), np.where(serves, high, middle - 1)
        return low[:count]

    def _kind(self, index: int) -> tuple[VfRequest, ...]:
        """Return what makes interfaces alike in all requests."""
        return tuple(replace(one.interfaces[index], name=None, containers=None) for one in self._requests)

    def most_members(self, *, are_distinct: bool = False) -> Amounts:
        """Return for how many members each node has the VFs, where all PFs are on one network without a name.

        Where they ``are_distinct``, a member takes one VF of a PF at the most.
        """
        kinds: dict[tuple[VfRequest, ...], list[int]] = {}
        for index in range(self._depth):
            kinds.setdefault(self._kind(index), []).append(index)
        room = np.full(self._pfs().node_count, _MANY)
        for alike in kinds.values():
            room = np.minimum(room, self._gives(alike[0], "") // len(alike))
        if are_distinct and self._depth > 1:
            pfs, there = self._pfs(), self._there("")
            for _ in range(_NARROWED):
                each = np.minimum(pfs.vfs[there], room[pfs.nodes[there]])
                room = np.minimum(room, self._by_node(there, each, is_part=True) // self._depth)
        return room

    def _gives(self, index: int, network: str) -> Amounts:
        """Return for how many members each node could give this interface on a network."""
        there = self._there(network)
        return self._by_node(there, self._by_pf(index, there), is_part=True)

    def _by_pf(self, index: int, there: slice) -> Amounts:
        """Return for how many members each of these PFs could give this interface."""
        pfs, rate = self._pfs(), self._rates[index]
        vfs = pfs.vfs[there] * (pfs.able[there] >> index & 1)
        return np.minimum(vfs, pfs.mbps[there] // rate) if rate else vfs

    def _there(self, network: str) -> slice:
        return self._pfs().starts.get(network, slice(0, 0))

    def _by_node(self, there: slice, amounts: Amounts, *, is_part: bool = False) -> Amounts:
        """Sum what PFs have, by node."""
        pfs = self._pfs()
        self._compared += max(pfs.node_count, _FEW)
        # Floating point holds these sums exactly.
        found = np.bincount(pfs.nodes[there], amounts if is_part else amounts[there], pfs.node_count)
        return found.astype(np.int64)

    def _pfs(self) -> _Pfs:
        if self._known_pfs is None:
            self._known_pfs = self._look(list(self._free_vfs()))
        return self._known_pfs

    def _look(self, free_vfs: Sequence[FreeVfs]) -> _Pfs:
        numbers = dict[str, int]()
        # Many models have the same networks.
        of_networks = dict[tuple[str, ...], Sequence[int]]()
        known = dict[int, tuple[Sequence[int], Sequence[int]]]()
        networks, able = list[int](), list[int]()
        for one in free_vfs:
            # Nodes of one model share their PFs, and those that are looked at stay.
            found = known.get(id(one.pfs))
            if found is None:
                names = tuple(map(self._network_of, one.pfs))
                there = of_networks.get(names)
                if there is None:
                    there = of_networks[names] = [numbers.setdefault(name, len(numbers)) for name in names]
                found = known[id(one.pfs)] = there, self._able(one.pfs, is_exact=len(known) < _MOST_PFS)
            networks += found[0]
            able += found[1]
        counts = [len(one.pfs) for one in free_vfs]
        left = np.fromiter(chain.from_iterable(chain.from_iterable(one.capacities for one in free_vfs)), np.int64)
        of_network = np.array(networks, np.int64)
        order = np.argsort(of_network, kind="stable")
        ends = np.searchsorted(of_network[order], np.arange(len(numbers) + 1)).tolist()
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return _Pfs(
            [one.pfs for one in free_vfs],
            [0, *accumulate(counts)],
            places,
            np.repeat(np.arange(len(counts)), counts)[order],
            left[::2][order],
            np.maximum(left[1::2], 0)[order],
            np.array(able, np.int64)[order],
            {network: slice(ends[number], ends[number + 1]) for network, number in numbers.items()},
            len(counts),
        )

    def _able(self, pfs: tuple[Pf, ...], *, is_exact: bool) -> Sequence[int]:
        """Return for each PF which interfaces it could give, as bits, for any of the requests."""
        if not is_exact:
            return [(1 << self._depth) - 1] * len(pfs)
        able = [0] * len(pfs)
        for request in self._requests:
            demands = demands_on(request, pfs)
            if isinstance(demands, str):
                continue
            for index, (_, eligible) in enumerate(demands[: self._depth]):
                able = [has | (eligible >> number & 1) << index for number, has in enumerate(able)]
        return able


class NetworkRooms:
    """What nodes have left on each network for at least ``wanted`` of members with these requests, in such numbers.

    Members are judged by the interfaces that all have. Where all are needed, those that have the most are judged by
    themselves too.
    """

    def __init__(
        self, requests: Mapping[PodRequest | None, int], wanted: int, free_vfs: Callable[[], Iterable[FreeVfs]]
    ) -> None:
        self._first = NetworkRoom(list(requests), wanted, free_vfs)
        self.rooms: tuple[NetworkRoom, ...] = (self._first,)
        by_interfaces = sorted(requests, key=lambda one: len(one.interfaces) if one is not None else 0)
        if wanted == sum(requests.values()) and by_interfaces[0] != by_interfaces[-1]:
            self.rooms = (self._first, NetworkRoom(by_interfaces[-1:], requests[by_interfaces[-1]], free_vfs))

    def giving(self, index: int, networks: Sequence[str]) -> Sequence[str]:
        """Return those of some networks on which enough members could have this interface."""
        for one in self.rooms:
            networks = one.giving(index, networks)
        return networks

    def could_hold(self, networks: Sequence[str]) -> bool:
        """Return whether enough members could have their first interfaces on these."""
        return all(one.could_hold(networks) for one in self.rooms)

    def most_on(self, networks: Sequence[str]) -> int:
        """Return how many members could have their first interfaces on these at the most."""
        return self._first.most_on(networks)
