"""Slices of consecutive ranks lie whole in one domain on each level; against brute force on small clusters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from tests.scheduler.cycle.groups.scene import INDEX, Scene, message_of, nodes_of_members
from tests.scheduler.group_life import changed, orders, told, victims
from tests.scheduler.story import play, stories

# Members that the nodes of each rack hold, by zone and rack.
Room = Mapping[str, Sequence[Sequence[int]]]
_THREES, _FOURS = {"size": 3, "within": "rack"}, {"size": 4, "within": "rack"}
# What the path of a node shows: the zone of a wide slice, the rack of a narrow one, and the name of that rack.
_ZONE, _RACK, _RACK_NAME = slice(2), slice(3), slice(2, 3)
# Two slices of three, each in a rack for four, and a rack that is free.
_STARTED = "nodes z.a:2*2 z.b:2*2 | job 6:1 slices=rack:3 | run > z.a*3 z.b*3 | nodes y.c:2*3"
_STORIES = {
    # The largest rack, and the smallest one that holds the last slice.
    "few domains are used": "nodes z.a:4 z.b:8 z.c:12 z.d:8 | job 16:1 slices=rack:4 | run > z.c*12 z.a*4",
    # Zone y has nine places, and six for slices of two.
    "room for whole slices counts": """
        nodes y.a:3 y.b:3 y.c:3 z.a:4 z.b:4 z.c:2 | job 8:1 slices=rack:2,zone:4 | run > z.a*4 z.b*4""",
    # Also if other ranks are lost and do not come back.
    "a lost rank joins its slice": f"{_STARTED} | delete m0 | again m0 | run > z.a",
    "a last rank does": f"{_STARTED} | delete m5 | again m5 | run > z.b",
    "a rank does beside another lost one": f"{_STARTED} | delete m0 m1 | again m1 | run > z.a",
    "a rank does beside one of another slice": f"{_STARTED} | delete m2 m4 | again m4 | run > z.b",
    "lost ranks join theirs": """
        nodes z.a:1*5 z.b:1*5 z.c:1*5 | job 12:1 slices=rack:4 | run > z.a*4 z.b*4 z.c*4 | delete m8 m1 | again m8 | run
        > z.c | again m1 | run > z.a""",
    # As with within: it goes to no other domain, and starts when there is room.
    "a lost rank waits for its domain": f"""
        {_STARTED} | delete m0 | pods a:1 a:1 | run | again m0 | run | delete p0 | run > z.a""",
}


def _build(life: Scene, room: Room) -> None:
    """Make nodes with VFs for some members of one VF; racks of all zones have the same names."""
    for zone, racks in room.items():
        life.build(" ".join(f"r.{zone}.c{rack}:{vfs}" for rack, hosts in enumerate(racks) for vfs in hosts))


def _decide(life: Scene, job: str, **group: Any) -> list[Instruction]:
    life.ranks = life.ranks or Random(1)
    life.job(*job.split(), **group)
    return life.work()


def _see_names(life: Scene, *names: str) -> list[Pod]:
    """Let members without an index come; return those that are bound."""
    life.set_group(len(names), {"slices": _FOURS})
    return life.place(*(life.member(name, life.group, request=[{}]) for name in names))


def _reserved(life: Scene) -> dict[int, str]:
    """Return the node of each rank that room is kept on."""
    rooms = [room for one in life.machine.reservations.all() for room in one.rooms.values()]
    return {int(room.pod.rpartition("/m")[2]): room.node for room in rooms}


def _domain(pod: Pod) -> str:
    return (pod.spec.node_name or "").rpartition("-")[0]


def _assert_whole(nodes: Mapping[int, str], size: int, part: slice) -> None:
    """Check that ranks of each slice are in one domain."""
    domains = {(rank // size, *node.rpartition("-")[0].split(".")[part]) for rank, node in nodes.items()}
    assert len(domains) == len({rank // size for rank in nodes}), domains


def _exists(room: Room, narrow: int, wide: int, count: int) -> bool:
    """Return whether all slices have a place, by trying every zone and every rack for each."""
    slots = {zone: [sum(hosts) // narrow for hosts in racks] for zone, racks in room.items()}

    def fill(left: int, slots: dict[str, list[int]]) -> bool:
        if not left:
            return True
        for zone, free in slots.items():
            for chosen in product(range(len(free)), repeat=wide // narrow):
                after = [have - chosen.count(number) for number, have in enumerate(free)]
                if min(after) >= 0 and fill(left - 1, {**slots, zone: after}):
                    return True
        return False

    return fill(count // wide, slots)


def _random_room(random: Random) -> Room:
    return {
        zone: [[random.randint(0, 3) for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 3))]
        for zone in "xyz"[: random.randint(1, 3)]
    }


@pytest.mark.parametrize("seed", range(120))
def test_slices_are_placed_whenever_they_have_a_place(life: Scene, seed: int) -> None:
    """Two levels; a decision places all slices whole, or nothing."""
    life.ranks = random = Random(seed)
    room, narrow = _random_room(random), random.choice((2, 3))
    wide = narrow * random.choice((1, 2))
    count = wide * random.randint(1, 3)
    _build(life, room)
    levels = [{"size": narrow, "within": "rack"}, *([{"size": wide, "within": "zone"}] if wide > narrow else [])]
    within: dict[str, Any] = {"within": "region"} if random.random() < 0.5 else {}
    if wide == narrow:
        # Without zones, racks of one name are one domain.
        racks = max(map(len, room.values()))
        room = {"": [[sum(map(sum, (r[k] for r in room.values() if k < len(r))))] for k in range(racks)]}
    nodes = nodes_of_members(_decide(life, f"{count}:1", slices=levels, **within))
    assert len(nodes) == (count if _exists(room, narrow, wide, count) else 0)
    _assert_whole(nodes, narrow, _RACK if wide > narrow else _RACK_NAME)
    if wide > narrow:
        _assert_whole(nodes, wide, _ZONE)


@pytest.mark.parametrize("seed", range(40))
def test_members_beyond_min_start_in_whole_slices(life: Scene, seed: int) -> None:
    """As many slices as fit, at least those of ``min``."""
    room = [[Random(seed * 5 + k).randint(0, 6)] for k in range(5)]
    _build(life, {"z": room})
    nodes = nodes_of_members(_decide(life, "20:1", min=4, slices=_FOURS))
    assert len(nodes) == min(sum(hosts[0] // 4 for hosts in room), 5) * 4
    _assert_whole(nodes, 4, _RACK)


@pytest.mark.parametrize("has_ranks", [False, True])
@stories(_STORIES)
def test_where_slices_and_lost_ranks_are(life: Scene, story: str, *, has_ranks: bool) -> None:
    """Members without an index have the rank that their name ends with, as the workers of an MPIJob."""
    life.ranks = Random(1) if has_ranks else None
    play(life, story)


def test_the_index_is_the_rank_whichever_pods_there_are(life: Scene) -> None:
    life.ranks = Random(1)
    play(life, f"{_STARTED} | delete m0 m2 m3 | again m3 | run > z.b")


def test_a_lost_slice_goes_where_it_has_room_as_a_whole(life: Scene) -> None:
    """Though its first rank comes back alone, and would fit into the room beside the other slice."""
    life.ranks = Random(1)
    rule = " ranks 3 to 5 have no member on a node, so they start together, and {} of 3 exist."
    play(life, f"{_STARTED} | crash m3..5 | again m4 | run")
    assert message_of(life.decided).endswith(rule.format(1))
    play(life, "again m3 | run")
    assert message_of(life.decided).endswith(rule.format(2))
    play(life, "again m5 | run > y.c*3")


def test_a_slice_without_a_domain_names_its_ranks_the_label_and_why_nodes_reject_a_member(life: Scene) -> None:
    """Room for 9 members in sum, and for no second slice."""
    life.build("z.a:5 z.b:3 z.c:1")
    assert next(iter(told(_decide(life, "8:1", slices=_FOURS)).values())) == (
        "group train: 4 of 8 members fit: no domain of label 'rack' has room for ranks 4 to 7, the largest for 3: "
        "0/3 nodes are available for the 5th member: 1 not enough free RDMA VFs, 2 node(s) were outside the group's "
        "topology domain."
    )


@pytest.mark.parametrize("within", [{}, {"within": "region"}])
@pytest.mark.parametrize("levels", [("rakk",), ("rakk", "zone"), ("rack", "rakk")])
def test_a_label_that_no_node_has_is_the_reason(life: Scene, levels: Sequence[str], within: dict[str, Any]) -> None:
    """As with ``within``: misspelt, or not set yet."""
    life.build("r.z.a:4 r.z.b:4 r.y.a:4")
    slices = [{"size": 2 * (number + 1), "within": label} for number, label in enumerate(levels)]
    message = message_of(_decide(life, "4:1", slices=slices, **within))
    assert message.endswith(": 0/3 nodes are available for the 1st member: 3 node(s) had no label rakk.")
    assert "no domain" not in message


@pytest.mark.parametrize("hosts", [4, 5], ids=["full", "one free"])
def test_members_of_other_names_join_the_slices_that_lack_them(life: Scene, hosts: int) -> None:
    """As the workers of a RayCluster: another pod takes the place of a lost one, and its name is random."""
    random = Random(hosts)
    life.build(f"z.a:1*{hosts} z.b:1*{hosts} z.c:1*{hosts}")
    names = iter(f"w-{number:08x}" for number in random.sample(range(2**32), 200))
    pods = _see_names(life, *(next(names) for _ in range(12)))
    for _ in range(30):
        lost = random.sample(pods, random.randint(1, 3))
        life.gone(*lost)
        for pod in lost:
            life.now += 15.0
            (new,) = _see_names(life, next(names))
            pods.remove(pod)
            pods.append(new)
        assert Counter(map(_domain, pods)) == {"z.a": 4, "z.b": 4, "z.c": 4}


def test_failed_pods_of_other_names_have_no_rank(life: Scene) -> None:
    """As those of a Job without indexes that starts again."""
    life.build("z.a:4 z.b:4 z.c:4 z.d:3")
    pods = _see_names(life, *(f"first-{rank}" for rank in range(12)))
    life.see(*(changed(pod, status={"phase": "Failed"}) for pod in pods))
    life.now += 15.0
    again = _see_names(life, *(f"first-{rank}-again" for rank in range(12)))
    assert Counter(map(_domain, again)) == {"z.a": 4, "z.b": 4, "z.c": 4}


def test_a_rank_keeps_its_slice_while_the_last_of_an_earlier_job_is_missing(life: Scene) -> None:
    """Of a JobSet with a slice for each of its Jobs; each rack has a free node."""
    life.build("z.a:1*5 z.b:1*5 z.c:1*5")
    life.set_group(12, {"slices": _FOURS})

    def member(job: int, index: int) -> Pod:
        labels = {INDEX: str(index), "jobset.sigs.k8s.io/job-global-index": str(job)}
        return life.member(f"train-{job}-{index}", life.group, request=[{}], metadata={"labels": labels})

    pods = life.place(*(member(job, index) for job in range(3) for index in range(4)))
    by_name = {pod.metadata.name: pod for pod in pods}
    life.gone(by_name["train-0-3"], by_name["train-1-0"])
    assert list(map(_domain, life.place(member(1, 0)))) == [_domain(by_name["train-1-1"])]


def test_a_group_sends_others_away_so_that_its_slices_are_whole(life: Scene) -> None:
    """Both pods of one rack, one of two of another; the slices are nominated there as a whole."""
    play(life, "nodes r.z.a:2 r.z.a:1 r.z.b:2*2 r.z.c:1*2 | pods a:1 b:1 c:1 a:1 b:1 c:1 | run")
    life.spec = {"priority": 10}
    decided = _decide(life, "6:1", slices=_THREES)
    assert len(orders(decided)) == 1
    assert victims(decided) in (["p0", "p1", "p3"], ["p0", "p3", "p4"])
    nodes = _reserved(life)
    assert len(nodes) == 6
    assert {node.rpartition("-")[0] for node in nodes.values()} == {"r.z.a", "r.z.b"}
    _assert_whole(nodes, 3, _RACK)


def test_a_slice_does_not_use_what_victims_of_another_one_leave(life: Scene) -> None:
    """A pod with four VFs leaves room for one member more than its slice needs, in another rack."""
    play(life, "nodes r.z.a:4 r.z.b:3 | pods ?:4 ?:1 ?:1 ?:1 | run")
    life.spec = {"priority": 10}
    assert victims(_decide(life, "6:1", slices=_THREES)) == ["p0", "p1", "p2", "p3"]
    _assert_whole(_reserved(life), 3, _RACK)


@pytest.mark.parametrize("with_pods", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_slices_of_unequal_members_are_never_split(life: Scene, seed: int, *, with_pods: bool) -> None:
    """Sums show too much room for them: a slice that does not fit leaves nothing behind, and is tried elsewhere."""
    random = Random(seed)
    _build(life, {zone: [[random.randint(1, 4) for _ in range(3)] for _ in range(3)] for zone in "yz"})
    play(life, f"pods {' '.join(random.choices(('?:1', '?:2'), k=10 if with_pods else 0))} | run")
    levels, job = [{"size": 2, "within": "rack"}, {"size": 4, "within": "zone"}], random.choices("123", k=8)
    life.spec = {"priority": 10}
    decided = _decide(life, " ".join(f"1:{vfs}" for vfs in job), min=4, slices=levels)
    for nodes in (_reserved(life) if orders(decided) else {}, nodes_of_members(decided)):
        assert len(nodes) in (0, 4, 8)
        _assert_whole(nodes, 4, _ZONE)
        _assert_whole(nodes, 2, _RACK)


@pytest.mark.parametrize("seed", range(60))
def test_victims_leave_room_for_whole_slices_whenever_it_exists(life: Scene, seed: int) -> None:
    """All pods are of a lower priority: the group fits after that if it fits into the empty cluster."""
    random = Random(seed)
    room, narrow = _random_room(random), random.choice((2, 3))
    wide = narrow * 2
    count = wide * random.randint(1, 2)
    _build(life, room)
    play(life, f"pods {'?:1 ' * random.randint(1, 12)} | run")
    life.spec = {"priority": 10}
    levels = [{"size": narrow, "within": "rack"}, {"size": wide, "within": "zone"}]
    decided = _decide(life, f"{count}:1", slices=levels)
    nodes = nodes_of_members(decided)
    if not nodes and orders(decided):
        life.gone(*(life.running[name] for name in victims(decided)))
        nodes = nodes_of_members(life.work(15.0))
    assert (len(nodes) == count) == _exists(room, narrow, wide, count)
    _assert_whole(nodes, wide, _ZONE)
    _assert_whole(nodes, narrow, _RACK)
