"""A place for a whole group of unequal members is found whenever one exists: against brute force on small clusters."""

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from mooring.nic.settings import VfSettings
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Node
from scheduler.kube.outcomes import Outcome
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod

_OFFER = 90_000


@dataclass(frozen=True, slots=True)
class Member:
    """What one member wants: thousandths of a cpu, a VF of each rate, and a node of this rack, if one is named."""

    cpu: int
    rates: tuple[int, ...]
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """What one node has: thousandths of a cpu, how many VFs each of its PFs has, and how many a running pod holds."""

    cpu: int
    vfs: tuple[int, ...]
    rack: str = "r0"
    held: tuple[int, ...] = ()


def can_hold(host: Host, members: Sequence[Member]) -> bool:
    """Return whether a node has room for these members, by trying every PF for every VF."""
    if sum(one.cpu for one in members) > host.cpu or {one.rack for one in members} - {"", host.rack}:
        return False
    rates = sorted((rate for one in members for rate in one.rates), reverse=True)
    return _pack(rates, [(vfs, _OFFER) for vfs in host.vfs])


def _pack(rates: list[int], left: list[tuple[int, int]]) -> bool:
    if not rates:
        return True
    return any(
        vfs > 0 and mbps >= rates[0] and _pack(rates[1:], [*left[:k], (vfs - 1, mbps - rates[0]), *left[k + 1 :]])
        for k, (vfs, mbps) in enumerate(left)
    )


def exists(hosts: Sequence[Host], members: Sequence[Member], least: int) -> bool:
    """Return whether at least so many of the members can be placed, by trying every node for every member."""
    nowhere = len(hosts)
    for where in itertools.product(range(nowhere + 1), repeat=len(members)):
        if where.count(nowhere) > len(members) - least:
            continue
        on = [[one for one, at in zip(members, where, strict=True) if at == k] for k in range(nowhere)]
        if all(can_hold(host, those) for host, those in zip(hosts, on, strict=True)):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Cluster:
    make_node: MakeNode
    make_pf: MakePf
    make_pod: MakePod

    def place(self, hosts: Sequence[Host], members: Sequence[Member], least: int, within: str = "") -> dict[str, str]:
        """Let the scheduler place a group; return the node of each member that is bound."""
        machine = Machine("mooring")
        self.fill(machine, hosts, members, least, within)
        bound = dict[str, str]()
        while (made := machine.step(0.0)) is not None:
            machine.check()
            bound |= placed(made)
        return bound

    def fill(
        self, machine: Machine, hosts: Sequence[Host], members: Sequence[Member], least: int, within: str = ""
    ) -> None:
        """Show the scheduler nodes and a group."""
        for number, host in enumerate(hosts):
            node = self.node(f"n{number}", host)
            machine.nodes(Changed(Identity(f"n{number}"), node), 0.0)
            if host.held:
                self._occupy(machine, f"n{number}", host)
        group = json.dumps({"name": "train", "min": least} | ({"within": within} if within else {}))
        for number, one in enumerate(members):
            container = {"name": "c", "resources": {"requests": {"cpu": f"{one.cpu}m"}}}
            request = [{"min_tx_rate": rate} if rate else {} for rate in one.rates] or None
            spec = {"containers": [container]} | ({"nodeSelector": {"rack": one.rack}} if one.rack else {})
            pod = self.make_pod(f"p{number}", request, annotations={names.GROUP: group}, spec=spec)
            machine.pods(Changed(Identity(f"p{number}", "default", pod.metadata.uid), pod), 0.0)

    def _occupy(self, machine: Machine, node: str, host: Host) -> None:
        pfs = [self.make_pf(index, vfs) for index, vfs in enumerate(host.vfs)]
        vfs = tuple(
            AssignedVf(pf.name, index, pf.vf_pci(index), pf.link, pf.network, VfSettings())
            for pf, count in zip(pfs, host.held, strict=True)
            for index in range(count)
        )
        uid = f"on-{node}"
        texts = {names.ASSIGNMENT: dump_assignment(Assignment(uid, node, vfs))}
        pod = self.make_pod(uid, [{}] * len(vfs), node, metadata={"uid": uid, "annotations": texts}, annotations=texts)
        machine.pods(Changed(Identity(uid, "default", uid), pod), 0.0)

    def node(self, name: str, host: Host) -> Node:
        pfs: tuple[Pf, ...] = tuple(self.make_pf(index, vfs) for index, vfs in enumerate(host.vfs))
        return self.make_node(name, pfs, allocatable={"cpu": f"{host.cpu}m"}, labels={"rack": host.rack})


def placed(made: Sequence[Instruction]) -> dict[str, str]:
    """Return the nodes of the members that are bound."""
    found = [one for one in made if isinstance(one, Bind) and one.pod_info.membership is not None]
    return {one.pod_info.pod.metadata.name: one.assigned.node for one in found}


@pytest.fixture
def cluster(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Cluster:
    return Cluster(make_node, make_pf, make_pod)


def cut(random: Random, total: int, parts: int, unit: int) -> list[int]:
    """Return that many positive multiples of ``unit`` with this sum."""
    cuts = sorted(random.sample(range(1, total // unit), parts - 1))
    return [(high - low) * unit for low, high in itertools.pairwise([0, *cuts, total // unit])]


def planted(random: Random, hosts: int, pfs: int) -> tuple[list[Host], list[Member]]:
    """Return nodes, and members that fill them to the last VF, Mb/s and cpu."""
    made, members = [], []
    for _ in range(hosts):
        vfs = tuple(random.randint(1, 3) for _ in range(pfs))
        rates = [rate for count in vfs for rate in cut(random, _OFFER, count, 10_000)]
        random.shuffle(rates)
        count = random.randint(1, min(3, len(rates)))
        ends = [0, *sorted(random.sample(range(1, len(rates)), count - 1)), len(rates)]
        cpus = cut(random, 8000, count, 1000)
        made.append(Host(8000, vfs))
        members += [
            Member(cpu, tuple(rates[low:high])) for cpu, (low, high) in zip(cpus, itertools.pairwise(ends), strict=True)
        ]
    random.shuffle(members)
    return made, members


@pytest.mark.parametrize("seed", range(60))
def test_a_group_is_placed_only_if_brute_force_places_it(cluster: Cluster, seed: int) -> None:
    """With less room than is wanted, or as much, or with members to spare."""
    random = Random(1000 + seed)
    hosts = [Host(random.choice((4000, 8000)), (random.randint(1, 3),) * random.randint(1, 2)) for _ in range(2)]
    members = [
        Member(
            random.choice((1000, 2000, 3000)),
            tuple(random.choice((0, 20_000, 30_000, 40_000, 50_000, 60_000)) for _ in range(random.randint(0, 3))),
        )
        for _ in range(random.randint(2, 6))
    ]
    least = random.randint(max(len(members) - 2, 1), len(members))
    bound = cluster.place(hosts, members, least)
    assert not bound or exists(hosts, members, least), Counter(bound.values())
    assert len(bound) in (0, *range(least, len(members) + 1))


@pytest.mark.parametrize("seed", range(60))
def test_a_group_of_equal_members_is_placed_exactly_if_brute_force_places_it(cluster: Cluster, seed: int) -> None:
    """With rates that a PF takes in any order."""
    random = Random(2000 + seed)
    hosts = [Host(random.choice((4000, 8000)), (random.randint(1, 3),) * random.randint(1, 2)) for _ in range(2)]
    rates = (random.choice((0, 30_000, 45_000)),) * random.randint(1, 2)
    members = [Member(random.choice((1000, 2000, 3000)), rates)] * random.randint(2, 6)
    least = random.randint(max(len(members) - 2, 1), len(members))
    bound = cluster.place(hosts, members, least)
    assert (len(bound) >= least) == exists(hosts, members, least), Counter(bound.values())


def test_the_largest_member_is_left_out_if_enough_others_fit_without_it(cluster: Cluster) -> None:
    """Of three, two are needed."""
    assert cluster.place([Host(6000, (4,))], [Member(5000, ()), Member(3000, ()), Member(3000, ())], 2) == {
        "p1": "n0",
        "p2": "n0",
    }


@pytest.mark.parametrize("seed", range(80))
def test_nodes_that_only_look_alike_are_each_judged(cluster: Cluster, seed: int) -> None:
    """They have as many VFs and Mb/s, on other PFs, or only some members may go there: none gets what is not there."""
    random = Random(2000 + seed)
    hosts = [Host(6000, random.choice(((1, 3), (2, 2), (3, 1), (4, 0))), f"r{k % 2}") for k in range(3)]
    members = [
        Member(
            random.choice((1000, 2000, 3000)),
            tuple(random.choice((30_000, 40_000, 50_000, 60_000)) for _ in range(random.randint(1, 3))),
            random.choice(("", "", "r0", "r1")),
        )
        for _ in range(random.randint(4, 7))
    ]
    least = max(len(members) - random.choice((0, 0, 1, 2)), 1)
    bound = cluster.place(hosts, members, least)
    assert not bound or exists(hosts, members, least)


@pytest.mark.parametrize("seed", range(30))
def test_a_decision_holds_though_nodes_change_and_others_are_decided_about(cluster: Cluster, seed: int) -> None:
    """Nobody is bound before all are placed; once nothing changes any more, they are."""
    random = Random(3000 + seed)
    hosts = [Host(8000, (8, 8)) for _ in range(3)]
    members = [Member(1000, (10_000,) * random.randint(0, 2)) for _ in range(9)]
    machine = Machine("mooring", portion=1)
    cluster.fill(machine, hosts, members, len(members))
    bound, now, events = dict[str, str](), 0.0, 0
    for turn in range(100_000):
        made = machine.step(now)
        machine.check()
        found = placed(made or ())
        assert len(found) in (0, len(members))
        bound |= found
        for bind in (one for one in made or () if isinstance(one, Bind)):
            machine.finished(bind, Outcome("bound"), now)
        if made is None and events == 40:
            break
        if turn % 4 == 3 and events < 40:
            events += 1
            number = random.randrange(3)
            node = cluster.node(f"n{number}", replace(hosts[number], rack=f"r{events}"))
            machine.nodes(Changed(Identity(f"n{number}"), node), now)
            single = cluster.make_pod()
            machine.pods(Changed(Identity(single.metadata.name, "default", single.metadata.uid), single), now)
        now += 0.1 if made is not None else 20.0
    assert len(bound) == len(members)
    for number, host in enumerate(hosts):
        assert can_hold(host, [members[int(name[1:])] for name, node in bound.items() if node == f"n{number}"])


@pytest.mark.parametrize("seed", range(40))
def test_nobody_or_all_are_placed_though_nodes_change(cluster: Cluster, seed: int) -> None:
    """Members fill the nodes to the last, which few orders do."""
    random = Random(5000 + seed)
    hosts, members = planted(random, 4, 2)
    machine = Machine("mooring", portion=random.choice((1, 3, 8)))
    cluster.fill(machine, hosts, members, len(members))
    bound, now, events, quiet = dict[str, str](), 0.0, 0, 0
    while quiet < 2:
        made = machine.step(now)
        machine.check()
        bound |= placed(made or ())
        if events < 25 and random.random() < 0.08:
            events += 1
            number = random.randrange(4)
            node = cluster.node(f"n{number}", replace(hosts[number], rack=f"r{events}"))
            machine.nodes(Changed(Identity(f"n{number}"), node), now)
            if random.random() < 0.5:
                single = cluster.make_pod()
                machine.pods(Changed(Identity(single.metadata.name, "default", single.metadata.uid), single), now)
        quiet = quiet + 1 if made is None else 0
        now += 0.1 if made is not None else 20.0
    assert len(bound) in (0, len(members))
