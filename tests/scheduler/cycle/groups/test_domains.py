"""Groups and topology domains: one value of a node label for all members, the smallest domain that holds the group.

``scene.py`` explains the notation of nodes, members and stories.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from scheduler.cycle.groups.domains import domains_within
from scheduler.kube.group import Group, GroupKey
from scheduler.state.machine import Machine
from tests.scheduler.cycle.groups.scene import Scene, message_of, summary
from tests.scheduler.group_life import binds

_IN_RACK, _BY_RACK, _BY_BOTH = {"within": "rack"}, {"prefer": ["rack"]}, {"prefer": ["rack", "zone"]}
_IN_ZONE = {"within": "zone", "prefer": ["rack"]}
_PLACES: dict[str, tuple[dict[str, Any], str]] = {
    # The larger one stays free for a larger group; free cpu is not what counts.
    "the smallest domain that holds all": (_IN_RACK, "nodes large*6 cpus*5:1 small*3; job 3 -> small*3"),
    "the smallest by its VFs": (_IN_RACK, "nodes wide*2:8 small*3:4; job 6 -> small*6"),
    "the smallest in members and not in VFs": (_IN_RACK, "nodes pods*5:8#1 small*2:4; job 4 -> small*4"),
    # Together the racks 1 would be the smaller domain, and hold nobody.
    "racks of one name in two zones": (_IN_ZONE, "nodes x.1*2 y.1*3 y.2*6; job 3 -> y.1*3"),
    "the most if no domain holds all": (_IN_RACK | {"min": 2}, "nodes a*2 b*3; job 4 -> b*3"),
    "a narrow domain if one holds all": (_BY_BOTH, "nodes r.l1*2 r.l2*2 s.l3*3; job 3 -> s.l3*3"),
    "a wide one if no narrow one does": (_BY_BOTH, "nodes r.l1*2 r.l2*2 s.l3*3; job 4 -> r.l1*2 r.l2*2"),
    "what is preferred is not required": (_BY_RACK, "nodes a*2 b*2; job 4 -> a*2 b*2"),
    # Three racks would do as well as two.
    "the fewest racks, with ranks together": (_BY_RACK, "nodes a*2 b*4 c*2 d*3; job 7 -> b*4 d*3"),
    # The larger one stays for a job of six.
    "of as few racks those that just fit": (_BY_RACK, "nodes a*6 b*4 c*4; job 8 -> b*4 c*4"),
    "the fewest on each level": (
        _BY_BOTH,
        f"nodes {'a.1 a.2 ' * 3}{'b.1 b.2 ' * 3}c.?*2; job 9 -> a.1*3 a.2*3 b.1*3",
    ),
    "a name may be empty": (_IN_RACK, "nodes a *2; job 2 -> *2"),
    # topograph sets no label for a tier that a cluster does not have.
    "without wider labels": ({"prefer": ["rack", "zone", "region"]}, "nodes ?.?.a*4 ?.?.b*4 ?.z.c*4; job 4 -> ?.?.a*4"),
    "a later member joins the domain": (_IN_RACK, "nodes a*2 b*5; job 2 -> a*2; job 1 ->; nodes a*3 -> a"),
    # A domain is its label's value and those of all wider levels.
    "racks of one name are not one domain": (_IN_ZONE, "nodes x.1*2 y.1*2; job 3 ->; nodes y.2 -> y.1*2 y.2"),
    "a later member joins what was preferred": (_BY_RACK, "nodes l1*2 l2*5; job 2 -> l1*2; lose m0; job 1 -> l1"),
    # No rack holds all of them, and a third one has more room.
    "it joins racks of the others": (_BY_RACK, "nodes a*3 b*3 z*2; job 6 -> a*3 b*3; lose m2; nodes c*3; job 1 -> a"),
    "so in wider domains": (
        _BY_BOTH,
        "nodes z.a*5 z.b*5 z.c*5; nodes z.b:1; job 8 -> z.a*5 z.b*3; crash m1; job 1 -> z.b",
    ),
    # A free rack of the group comes before an empty one, though most are in that one's zone.
    **{
        f"a later member stays beside the others {within}": (
            _BY_BOTH | within,
            "nodes r.x.a*4 r.y.b*3; job 7 -> r.x.a*4 r.y.b*3; lose m6; nodes r.x.c; job 1 -> r.y.b",
        )
        for within in ({}, {"within": "region"})
    },
    # Beside the others' rack, which is full, two are free and two have some room.
    **{
        f"ranks of a dead rack take the fewest {levels}": (
            levels,
            f"nodes {'z.a z.b z.c z.d z.e z.f ' * 2}{'z.a z.b z.e z.f ' * 2}; job 8 -> z.a*4 z.b*4; crash m0 m1 m2 m3; "
            "job 4 -> z.e*4",
        )
        for levels in (_BY_RACK, _BY_BOTH, _IN_ZONE)
    },
    # Of two racks with a member each later ones join the first, until its node goes.
    "a lost node changes the domain": (
        _IN_RACK,
        "nodes b*2; job 2 -> b*2; nodes b*4; nodes b=a; job 1 ->; remove b-0 -> b",
    ),
    "nodes without the zone's label are no domain": (
        _IN_ZONE,
        "nodes n=x.a; job 1 -> n; nodes n=?.a*2; job 1 ->; nodes n=x.a*2 -> n",
    ),
    # The group begins again, domain included.
    "all have failed": (_IN_RACK, "nodes a*2 b*3; job 2 -> a*2; fail m0 m1; pods a ->; job 2 -> b*2"),
}
# Of racks for members that differ: the nodes, the members, and how many of them are needed.
_UNEQUAL = {
    # The launcher fits nearly anywhere: how many of it a rack holds says nothing of the rack.
    "workers and their launcher": ("a*3:8 a*4:0@64 b*5:8", "3:8@4 1:0@.1 -> a*4", 4),
    # A rack of 32 VFs holds a member with 8 and six with 2 at most 1.6 times, though each kind oftener.
    "by what all take in sum": ("a*4:8 b*2:8 b*5:6", "1:8 6:2 -> a*7", 7),
    # Rack a has no room for the large member and holds the four small ones; rack b holds any two.
    "the most if none holds all": ("a*2:6 b:8@.002", "1:8@.001 4:2@.001 -> a*4", 2),
    # Rack a has cpus for ten members, and VFs for one worker; rack b holds four workers.
    "room for many launchers holds but one": ("a:8@1 a*9:0@1 b*4:8@1", "1:0@1 4:8@1 -> b*4", 2),
    "without the largest if enough others fit": ("a@6", "1:0@5 2:0@3 -> a*2", 2),
}
_LOST_NODE = "nodes a:4; job 2 -> a*2; remove a-0; nodes b*2; lose m1; job 1 ->"
_OUTSIDE = "*were outside the group's topology domain*"
# What happens, what members are told then, and what happens next.
_REASONS = {
    # The cluster has room enough, and no rack has.
    "no rack holds all": (
        "nodes a*2 b*3 ?; job 4 ->",
        "group train: 3 of 4 members fit in rack 'b', the best domain: 0/6 nodes are available for the 4th member: "
        "1 node(s) had no label rack, 2 node(s) were outside the group's topology domain, 3 not enough free RDMA VFs.",
        "nodes c*4 -> c*4",
    ),
    # No domain is nearer than another one: a node of each is too small in its own way, and one is in none.
    "no rack holds any": (
        "nodes a*2:1 b! ?; job 2 ->",
        "group train: 0 of 2 members fit: 0/4 nodes are available for the 1st member: 1 node(s) had no label rack, "
        "1 node(s) were unschedulable, 2 not enough free RDMA VFs.",
        "nodes c*2 -> c*2",
    ),
    # Misspelt, or not set yet.
    "no node has the label": (
        "nodes n=?*2; job 2 ->",
        "*0/2 nodes are available for the 1st member: 2 node(s) had no label rack.",
        "nodes n=a*2 -> n*2",
    ),
    "the domain of a lost node is not ''": ("nodes a; job 1 -> a; nodes *2; remove a-0; job 1 ->", _OUTSIDE, ""),
    "nor is that of a lost label": ("nodes a; job 1 -> a; nodes *2 a=?; job 1 ->", _OUTSIDE, ""),
    "until the node of a placed member comes back": (_LOST_NODE, _OUTSIDE, "nodes a:4 -> a"),
    "until that member goes as well": (_LOST_NODE, _OUTSIDE, "lose m0; job 1 -> b*2"),
}


@pytest.mark.parametrize("has_ranks", [False, True])
@pytest.mark.parametrize(("group", "story"), _PLACES.values(), ids=_PLACES)
def test_where_a_group_is(life: Scene, group: dict[str, Any], story: str, *, has_ranks: bool) -> None:
    """The ranks, if the members have some, come in any order; they are those of an indexed Job."""
    life.ranks = Random(1) if has_ranks else None
    life.play(story, **group)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(("nodes", "job", "least"), _UNEQUAL.values(), ids=_UNEQUAL)
def test_where_unequal_members_are(life: Scene, nodes: str, job: str, least: int, *, is_reversed: bool) -> None:
    words = nodes.split()[:: -1 if is_reversed else 1]
    life.play(f"nodes {' '.join(words)}; job {job}", min=least, **_IN_RACK)


@pytest.mark.parametrize(("story", "message", "sequel"), _REASONS.values(), ids=_REASONS)
def test_why_a_group_waits_and_for_what(life: Scene, story: str, message: str, sequel: str) -> None:
    assert fnmatchcase(message_of(life.play(story, **_IN_RACK)), message)
    life.play(sequel, **_IN_RACK)


@pytest.mark.parametrize("seed", range(60))
def test_the_smallest_rack_for_members_of_two_sizes(life: Scene, seed: int) -> None:
    """It is counted how often a rack holds the group, in its members as they are mixed.

    A large member takes a node of 8 VFs; what the large ones leave of a rack takes small ones without a rest.
    """
    random = Random(seed)
    racks = {rack: [random.choice((2, 6, 8)) for _ in range(random.randint(2, 8))] for rack in "abcd"}
    life.build(" ".join(f"{rack}:{vfs}" for rack, hosts in racks.items() for vfs in hosts))
    large, small = random.choice((1, 1, 2)), random.randint(3, 8)
    count = large + small

    def holds(vfs: Sequence[int]) -> int:
        return int(min(Fraction(vfs.count(8), large), Fraction(sum(vfs), 8 * large + 2 * small)) * count)

    life.job(" ".join(random.sample(["1:8"] * large + ["1:2"] * small, count)), **_IN_RACK)
    enough = {rack: holds(hosts) for rack, hosts in racks.items() if holds(hosts) >= count}
    smallest = [f"{rack}*{count}" for rack, room in enough.items() if room == min(enough.values())]
    assert summary(life.work()) in (smallest or [""])


def test_a_label_that_is_only_preferred_is_no_reason(life: Scene) -> None:
    """By any bound two PFs could hold three members that differ, and they hold two: the leaf is tried, and its rack."""
    life.build("a.l:4+4 b.?:4+4", ("rack", "leaf"))
    life.ask(*([{"min_tx_rate": rate}] for rate in (50_000, 50_000, 45_000)), within="rack", prefer=["leaf"])
    best = "2 of 3 members fit in rack 'a', the best domain: 0/2 nodes"
    assert fnmatchcase(message_of(life.work()), f"*{best}*1 node(s) were outside the group's topology domain*")


def test_the_topology_of_a_pod_group_is_required(life: Scene) -> None:
    """Its one key is the label that all members share."""
    life.pod_group(schedulingPolicy={"gang": {"minCount": 3}}, schedulingConstraints={"topology": [{"key": "rack"}]})
    life.build("n=?*3")
    life.see(*(life.member(f"m{k}", "", spec={"schedulingGroup": {"podGroupName": "train"}}) for k in range(3)))
    reason = "0/3 nodes are available for the 1st member: 3 node(s) had no label rack."
    assert message_of(life.play("->")).endswith(reason)
    life.play("nodes a*2 n=b*3 -> n*3")


def test_a_member_that_is_bound_elsewhere_during_a_decision_determines_the_domain(life: Scene) -> None:
    """Somebody else has bound it, between two portions: the group must not be in two racks."""
    life.play("nodes a*25 b*25; job 20", **_IN_RACK)
    assert life.machine.step(life.now) == []
    life.see(life.member("by-hand", life.group, node="b-24", request=[]))
    life.play("-> b*20")


def test_nobody_joins_in_the_domain_of_a_node_that_has_taken_the_row_of_a_placed_members(life: Scene) -> None:
    """Its node goes and another one comes during a decision, which has three levels to try before the rack."""
    life, levels = life.successor(Machine("mooring", portion=1)), ["rack", "hall", "spine", "leaf"]
    life.build("a=a.a.a.a", levels)
    life.play("job 1 -> a", within="rack", prefer=levels[:0:-1])
    life.build("b=b.b.b.b*2", levels)
    life.job("2")
    assert life.machine.step(life.now) == []
    row = life.machine.cache.nodes.row_of["a-0"]
    life.remove_node("a-0")
    life.build("c=b.b.b.b", levels)
    assert life.machine.cache.nodes.row_of["c-0"] == row
    assert binds(life.work()) == []


def test_of_domains_with_as_many_placed_members_the_first_by_name_is_tried(life: Scene) -> None:
    """Labels have changed since. The order of a set of names is another one in each process; so are 20 labels' here."""
    keys, nodes = [f"level-{number}" for number in range(20)], [f"n{number}-0" for number in range(8)]
    life.build(" ".join(f"n{n}=" + ".".join(f"{k}-{n}" for k in range(20)) for n in range(8)), keys)
    for number, key in enumerate(keys):
        group = Group(GroupKey("annotation", "default", "train"), 8, within=key)
        (domain,) = domains_within(group, nodes[::-1], life.machine.cache.nodes)
        assert domain.labels == ((key, f"{number}-0"),)


def test_of_domains_that_hold_as_many_that_of_the_first_node_is_tried_first(life: Scene) -> None:
    """Whatever labels the nodes have had before: a scheduler that starts now sees none of these."""
    life.build("n0=before*2 n1=a*2")
    # Some group has asked for the label.
    life.machine.cache.nodes.label("rack")
    life.play("nodes n0=b*2; job 2 -> n0*2", **_IN_RACK)
