"""Slices of consecutive ranks lie whole in one domain on each level; against brute force on small clusters."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, changed, orders, told, victims

_RACK, _CLIQUE, _BLOCK = "rack", "clique", "block"
# Members that the nodes of each clique hold, by rack and clique.
Room = Mapping[str, Sequence[Sequence[int]]]


def _build(life: Life, room: Room) -> None:
    """Make nodes r0-c0-0 and so on with VFs for some members of one VF; cliques of all racks have the same names."""
    for rack, cliques in room.items():
        for clique, hosts in enumerate(cliques):
            for number, vfs in enumerate(hosts):
                name, labels = f"{rack}-c{clique}-{number}", {_RACK: rack, _CLIQUE: f"c{clique}", _BLOCK: "b"}
                node = life.make_node(name, (life.make_pf(0, vfs),), labels=labels)
                life.machine.nodes(Changed(Identity(name), node), life.now)


def _see(life: Life, ranks: Iterable[int], spec: Mapping[str, Any] | None = None, **group: Any) -> list[Pod]:
    text = json.dumps({"name": "train", **group})
    pods = [
        life.member(f"train-{rank}", text, request=[{}], metadata={"labels": _index(rank)}, spec=dict(spec or {}))
        for rank in ranks
    ]
    life.see(*pods)
    return pods


def _index(rank: int) -> dict[str, str]:
    return {"batch.kubernetes.io/job-completion-index": str(rank)}


def _places(decided: Sequence[Any]) -> dict[int, str]:
    """Return the node of each rank that is bound."""
    return {int(one.pod_info.pod.metadata.name.partition("-")[2]): one.assigned.node for one in binds(list(decided))}


def _assert_whole(places: Mapping[int, str], size: int, depth: int) -> None:
    """Check that ranks of each slice are in one domain: the rack is the first part of a node's name, the clique two."""
    domains: dict[int, set[tuple[str, ...]]] = {}
    for rank, node in places.items():
        domains.setdefault(rank // size, set()).add(tuple(node.split("-")[:depth]))
    assert all(len(used) == 1 for used in domains.values()), domains


def _exists(room: Room, narrow: int, wide: int, count: int) -> bool:
    """Return whether all slices have a place, by trying every rack and every clique for each."""
    slots = {rack: [sum(hosts) // narrow for hosts in cliques] for rack, cliques in room.items()}

    def fill(left: int, slots: dict[str, list[int]]) -> bool:
        if not left:
            return True
        for rack in slots:
            for chosen in product(range(len(slots[rack])), repeat=wide // narrow):
                after = [have - chosen.count(number) for number, have in enumerate(slots[rack])]
                if min(after) >= 0 and fill(left - 1, {**slots, rack: after}):
                    return True
        return False

    return fill(count // wide, slots)


def _random_room(random: Random) -> Room:
    return {
        f"r{rack}": [[random.randint(0, 3) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 3))]
        for rack in range(random.randint(1, 3))
    }


@pytest.mark.parametrize("seed", range(120))
def test_slices_are_placed_whenever_they_have_a_place(life: Life, seed: int) -> None:
    """Two levels; a decision places all slices whole, or nothing."""
    random = Random(seed)
    room, narrow = _random_room(random), random.choice((2, 3))
    wide = narrow * random.choice((1, 2))
    count = wide * random.randint(1, 3)
    _build(life, room)
    levels = [{"size": narrow, "within": _CLIQUE}, *([{"size": wide, "within": _RACK}] if wide > narrow else [])]
    within: dict[str, Any] = {"within": _BLOCK} if random.random() < 0.5 else {}
    if wide == narrow:
        # Without racks, cliques of one name are one domain.
        cliques = max(map(len, room.values()))
        room = {"": [[sum(map(sum, (r[k] for r in room.values() if k < len(r))))] for k in range(cliques)]}
    _see(life, random.sample(range(count), count), min=count, slices=levels, **within)
    places = _places(life.work())
    assert (len(places) == count) == _exists(room, narrow, wide, count)
    assert len(places) in (0, count)
    if wide > narrow:
        _assert_whole(places, wide, 1)
        _assert_whole(places, narrow, 2)
    else:
        domains: dict[int, set[str]] = {}
        for rank, node in places.items():
            domains.setdefault(rank // narrow, set()).add(node.split("-")[1])
        assert all(len(used) == 1 for used in domains.values())


@pytest.mark.parametrize("seed", range(40))
def test_members_beyond_min_start_in_whole_slices(life: Life, seed: int) -> None:
    """As many slices as fit, at least those of ``min``."""
    random = Random(seed)
    room = {"r0": [[random.randint(0, 6)] for _ in range(5)]}
    _build(life, room)
    _see(life, range(20), min=4, slices={"size": 4, "within": _CLIQUE})
    places, slots = _places(life.work()), sum(hosts[0] // 4 for hosts in room["r0"])
    assert len(places) == min(slots, 5) * 4
    _assert_whole(places, 4, 2)


def test_few_domains_are_used(life: Life) -> None:
    """The largest clique, and the smallest one that holds the last slice."""
    _build(life, {"r0": [[4], [8], [12], [8]]})
    _see(life, range(16), min=16, slices={"size": 4, "within": _CLIQUE})
    assert set(_places(life.work()).values()) == {"r0-c2-0", "r0-c0-0"}


def test_a_slice_without_a_domain_names_its_ranks_the_label_and_why_nodes_reject_a_member(life: Life) -> None:
    """Room for 9 members in sum, and for no second slice."""
    _build(life, {"r0": [[5], [3], [1]]})
    _see(life, range(8), min=8, slices={"size": 4, "within": _CLIQUE})
    message = next(iter(told(life.work()).values()))
    reason = "no domain of label 'clique' has room for ranks 4 to 7, the largest for 3"
    nodes = "0/3 nodes are available for the 5th member: 1 not enough free RDMA VFs, 2 node(s) were outside"
    assert message == f"group train: 4 of 8 members fit: {reason}: {nodes} the group's topology domain."


@pytest.mark.parametrize("within", [{}, {"within": _BLOCK}])
@pytest.mark.parametrize("levels", [("rakk",), ("rakk", _RACK), (_CLIQUE, "rakk")])
def test_a_label_that_no_node_has_is_the_reason(life: Life, levels: Sequence[str], within: dict[str, Any]) -> None:
    """As with ``within``: misspelt, or not set yet."""
    _build(life, {"r0": [[4], [4]], "r1": [[4]]})
    slices = [{"size": 2 * (number + 1), "within": label} for number, label in enumerate(levels)]
    _see(life, range(4), min=4, slices=slices, **within)
    (message,) = set(told(life.work()).values())
    assert message.endswith(": 0/3 nodes are available for the 1st member: 3 node(s) had no label rakk.")
    assert "no domain" not in message


@pytest.fixture
def started(life: Life) -> tuple[Life, dict[int, Pod]]:
    """Two slices of three, each in a clique for four, and a clique that is free."""
    _build(life, {"r0": [[2, 2], [2, 2]]})
    _see(life, range(6), min=6, slices={"size": 3, "within": _CLIQUE})
    bound = life.bound(*binds(life.work()))
    _build(life, {"r1": [[], [], [2, 2, 2]]})
    return life, {int(pod.metadata.name.partition("-")[2]): pod for pod in bound}


@pytest.mark.parametrize("lost", [(0,), (5,), (0, 1), (2, 4), (0, 2, 3)])
def test_a_lost_rank_joins_its_slice(started: tuple[Life, dict[int, Pod]], lost: Sequence[int]) -> None:
    """Also if other ranks are lost and do not come back: the index is the rank, whichever pods there are."""
    life, pods = started
    life.gone(*(pods[rank] for rank in lost))
    _see(life, lost[-1:], min=6, slices={"size": 3, "within": _CLIQUE})
    places = _places(life.work())
    others = {node for rank, pod in pods.items() if (node := pod.spec.node_name) and rank // 3 == lost[-1] // 3}
    assert {node.split("-")[1] for node in places.values()} == {node.split("-")[1] for node in others}


def test_a_lost_rank_waits_if_its_domain_is_full(started: tuple[Life, dict[int, Pod]]) -> None:
    """As with ``within``: it goes to no other domain, and starts when there is room."""
    life, pods = started
    life.gone(pods[0])
    clique = (pods[1].spec.node_name or "").rpartition("-")[0]
    others = [life.make_pod(f"other-{n}", [{}], spec={"nodeSelector": {_CLIQUE: clique[-2:]}}) for n in range(2)]
    life.see(*others)
    rest = life.bound(*binds(life.work()))
    assert len(rest) == 2
    _see(life, [0], min=6, slices={"size": 3, "within": _CLIQUE})
    assert _places(life.work()) == {}
    life.gone(rest[0])
    assert [node.rpartition("-")[0] for node in _places(life.work(15.0)).values()] == [clique]


def test_a_lost_slice_goes_where_it_has_room_as_a_whole(started: tuple[Life, dict[int, Pod]]) -> None:
    """Though its first rank comes back alone, and would fit into the room beside the other slice."""
    life, pods = started
    life.gone(*(pods[rank] for rank in (3, 4, 5)))
    for node in {pods[rank].spec.node_name or "" for rank in (3, 4, 5)}:
        life.remove_node(node)
    for rank, count in ((4, 1), (3, 2)):
        _see(life, [rank], min=6, slices={"size": 3, "within": _CLIQUE})
        (message,) = set(told(life.work()).values())
        rule = f"ranks 3 to 5 have no member on a node, so they start together, and {count} of 3 exist."
        assert message.endswith(f" {rule}")
    _see(life, [5], min=6, slices={"size": 3, "within": _CLIQUE})
    places = _places(life.work())
    assert len(places) == 3
    assert {node.split("-")[1] for node in places.values()} == {"c2"}


def _see_names(life: Life, names: Iterable[str]) -> list[Bind]:
    """Let members without an index come; return their Binds."""
    text = json.dumps({"name": "train", "min": 12, "slices": {"size": 4, "within": _CLIQUE}})
    life.see(*(life.member(name, text, request=[{}]) for name in names))
    return binds(life.work(15.0))


@pytest.mark.parametrize("hosts", [4, 5], ids=["full", "one free"])
def test_members_of_other_names_join_the_slices_that_lack_them(life: Life, hosts: int) -> None:
    """As the workers of a RayCluster: another pod takes the place of a lost one, and its name is random."""
    random = Random(hosts)
    _build(life, {"r0": [[1] * hosts] * 3})
    names = iter(f"w-{number:08x}" for number in random.sample(range(2**32), 200))
    pods = life.bound(*_see_names(life, [next(names) for _ in range(12)]))
    for _ in range(30):
        lost = random.sample(pods, random.randint(1, 3))
        life.gone(*lost)
        for pod in lost:
            (bind,) = _see_names(life, [next(names)])
            pods.remove(pod)
            pods += life.bound(bind)
        assert Counter((pod.spec.node_name or "").split("-")[1] for pod in pods) == {"c0": 4, "c1": 4, "c2": 4}


def test_a_member_of_the_same_name_joins_its_slice_while_others_are_missing(life: Life) -> None:
    """As the workers of an MPIJob, which have no index; each clique has a free node."""
    _build(life, {"r0": [[1] * 5] * 3})
    pods = life.bound(*_see_names(life, [f"train-worker-{rank}" for rank in range(12)]))
    cliques = {pod.metadata.name: (pod.spec.node_name or "").split("-")[1] for pod in pods}
    life.gone(*(pod for pod in pods if pod.metadata.name in ("train-worker-1", "train-worker-8")))
    for name in ("train-worker-8", "train-worker-1"):
        (bind,) = _see_names(life, [name])
        life.bound(bind)
        assert bind.assigned.node.split("-")[1] == cliques[name]


def test_failed_pods_of_other_names_have_no_rank(life: Life) -> None:
    """As those of a Job without indexes that starts again."""
    _build(life, {"r0": [[4], [4], [4], [3]]})
    pods = life.bound(*_see_names(life, [f"first-{rank}" for rank in range(12)]))
    life.see(*(changed(pod, status={"phase": "Failed"}) for pod in pods))
    found = _see_names(life, [f"first-{rank}-again" for rank in range(12)])
    assert Counter(bind.assigned.node for bind in found) == {"r0-c0-0": 4, "r0-c1-0": 4, "r0-c2-0": 4}


def test_a_rank_keeps_its_slice_while_the_last_of_an_earlier_job_is_missing(life: Life) -> None:
    """Of a JobSet with a slice for each of its Jobs; each clique has a free node."""
    _build(life, {"r0": [[1] * 5] * 3})
    text = json.dumps({"name": "train", "min": 12, "slices": {"size": 4, "within": _CLIQUE}})

    def member(job: int, index: int) -> Pod:
        labels = _index(index) | {"jobset.sigs.k8s.io/job-global-index": str(job)}
        return life.member(f"train-{job}-{index}", text, request=[{}], metadata={"labels": labels})

    life.see(*(member(job, index) for job in range(3) for index in range(4)))
    pods = {pod.metadata.name: pod for pod in life.bound(*binds(life.work()))}
    life.gone(pods["train-0-3"], pods["train-1-0"])
    life.see(member(1, 0))
    (bind,) = binds(life.work())
    assert bind.assigned.node.rpartition("-")[0] == (pods["train-1-1"].spec.node_name or "").rpartition("-")[0]


def test_a_group_sends_others_away_so_that_its_slices_are_whole(life: Life) -> None:
    """Both pods of one clique, one of two of another; the slices are nominated there as a whole."""
    _build(life, {"r0": [[2, 1], [2, 2], [1, 1]]})
    running = [life.make_pod(f"p{k}", [{}], spec={"nodeSelector": {_CLIQUE: f"c{k % 3}"}}) for k in range(6)]
    life.see(*running)
    life.bound(*binds(life.work()))
    _see(life, range(6), {"priority": 10}, min=6, slices={"size": 3, "within": _CLIQUE})
    decided = life.work()
    assert len(orders(decided)) == 1
    assert victims(decided) in (["p0", "p1", "p3"], ["p0", "p3", "p4"])
    reservations = life.machine.reservations.all()
    nodes = {room.uid: room.node for one in reservations for room in one.rooms.values()}
    assert len(nodes) == 6
    assert {node.split("-")[1] for node in nodes.values() if node} == {"c0", "c1"}


def test_a_slice_does_not_use_what_victims_of_another_one_leave(life: Life) -> None:
    """A pod with four VFs leaves room for one member more than its slice needs, in another clique."""
    _build(life, {"r0": [[4], [3]]})
    running = [life.make_pod(f"p{k}", [{}] * vfs) for k, vfs in enumerate((4, 1, 1, 1))]
    life.see(*running)
    life.bound(*binds(life.work()))
    _see(life, range(6), {"priority": 10}, min=6, slices={"size": 3, "within": _CLIQUE})
    assert victims(life.work()) == ["p0", "p1", "p2", "p3"]
    rooms = [room for one in life.machine.reservations.all() for room in one.rooms.values()]
    _assert_whole({int(room.pod.rpartition("-")[2]): room.node for room in rooms}, 3, 2)


@pytest.mark.parametrize("with_pods", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_slices_of_unequal_members_are_never_split(life: Life, seed: int, *, with_pods: bool) -> None:
    """Sums show too much room for them: a slice that does not fit leaves nothing behind, and is tried elsewhere."""
    random = Random(seed)
    _build(life, {f"r{rack}": [[random.randint(1, 4) for _ in range(3)] for _ in range(3)] for rack in range(2)})
    running = [life.make_pod(f"p{k}", [{}] * random.randint(1, 2)) for k in range(10 if with_pods else 0)]
    life.see(*running)
    life.bound(*binds(life.work()))
    levels = [{"size": 2, "within": _CLIQUE}, {"size": 4, "within": _RACK}]
    text = json.dumps({"name": "train", "min": 4, "slices": levels})
    for rank in range(8):
        labels = {"labels": _index(rank)}
        request: list[dict[str, str]] = [{}] * random.choice((1, 2, 3))
        life.see(life.member(f"train-{rank}", text, request=request, metadata=labels, spec={"priority": 10}))
    decided = life.work()
    rooms = [one for one in life.machine.reservations.all() if orders(decided)]
    nodes = {room.pod: room.node for one in rooms for room in one.rooms.values()}
    reserved = {int(name.rpartition("-")[2]): node for name, node in nodes.items()}
    for places in (reserved, _places(decided)):
        assert len(places) in (0, 4, 8)
        _assert_whole(places, 4, 1)
        _assert_whole(places, 2, 2)


@pytest.mark.parametrize("seed", range(60))
def test_victims_leave_room_for_whole_slices_whenever_it_exists(life: Life, seed: int) -> None:
    """All pods are of a lower priority: the group fits after that if it fits into the empty cluster."""
    random = Random(seed)
    room, narrow = _random_room(random), random.choice((2, 3))
    wide = narrow * 2
    count = wide * random.randint(1, 2)
    _build(life, room)
    running = [life.make_pod(f"p{k}", [{}]) for k in range(random.randint(1, 12))]
    life.see(*running)
    life.bound(*binds(life.work()))
    levels = [{"size": narrow, "within": _CLIQUE}, {"size": wide, "within": _RACK}]
    _see(life, range(count), {"priority": 10}, min=count, slices=levels)
    decided = life.work()
    places = _places(decided)
    if not places and orders(decided):
        gone = set(victims(decided))
        life.gone(*(pod for pod in running if pod.metadata.name in gone))
        places = _places(life.work(15.0))
    assert (len(places) == count) == _exists(room, narrow, wide, count)
    _assert_whole(places, wide, 1)
    _assert_whole(places, narrow, 2)
