"""Groups and topology domains: one value of a node label for all members, the smallest domain that holds the group.

``scene.py`` explains the words for nodes and members.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from random import Random

import pytest

from scheduler.cycle.groups.domains import domains_within
from scheduler.kube.group import Group, GroupKey
from scheduler.state.machine import Machine
from tests.scheduler.cycle.groups.scene import Scene, message_of, racks_of_members
from tests.scheduler.group_life import binds
from tests.scheduler.story import play, stories

_PLACES = {
    # The larger one stays free for a larger group; free cpu is not what counts.
    "the smallest domain that holds all": "nodes large*6 cpus:1*5 small*3 | job 3 within=rack | run > small*3",
    "the smallest by its VFs": "nodes wide:8*2 small:4*3 | job 6 within=rack | run > small*6",
    "the smallest in members and not in VFs": "nodes pods:8#1*5 small:4*2 | job 4 within=rack | run > small*4",
    # Together the racks 1 would be the smaller domain, and hold nobody.
    "racks of one name in two zones": "nodes x.1*2 y.1*3 y.2*6 | job 3 within=zone prefer=rack | run > y.1*3",
    "the most if no domain holds all": "nodes a*2 b*3 | job 4 within=rack min=2 | run > b*3",
    "a narrow domain if one holds all": "nodes r.l1*2 r.l2*2 s.l3*3 | job 3 prefer=rack,zone | run > s.l3*3",
    "a wide one if no narrow one does": "nodes r.l1*2 r.l2*2 s.l3*3 | job 4 prefer=rack,zone | run > r.l1*2 r.l2*2",
    "what is preferred is not required": "nodes a*2 b*2 | job 4 prefer=rack | run > a*2 b*2",
    # Three racks would do as well as two.
    "the fewest racks, with ranks together": "nodes a*2 b*4 c*2 d*3 | job 7 prefer=rack | run > b*4 d*3",
    # The larger one stays for a job of six.
    "of as few racks those that just fit": "nodes a*6 b*4 c*4 | job 8 prefer=rack | run > b*4 c*4",
    "the fewest on each level": f"""
        nodes {"a.1 a.2 " * 3}{"b.1 b.2 " * 3}c.?*2 | job 9 prefer=rack,zone | run > a.1*3 a.2*3 b.1*3""",
    "a name may be empty": "nodes a *2 | job 2 within=rack | run > *2",
    # topograph sets no label for a tier that a cluster does not have.
    "without wider labels": "nodes ?.?.a*4 ?.?.b*4 ?.z.c*4 | job 4 prefer=rack,zone,region | run > ?.?.a*4",
    "a later member joins the domain": """
        nodes a*2 b*5 | job 2 within=rack | run > a*2 | job 1 | run | nodes a*3 | run > a""",
    # A domain is its label's value and those of all wider levels.
    "racks of one name are not one domain": """
        nodes x.1*2 y.1*2 | job 3 within=zone prefer=rack | run | nodes y.2 | run > y.1*2 y.2""",
    "a later member joins what was preferred": """
        nodes l1*2 l2*5 | job 2 prefer=rack | run > l1*2 | delete m0 | job 1 | run > l1""",
    # No rack holds all of them, and a third one has more room.
    "it joins racks of the others": """
        nodes a*3 b*3 z*2 | job 6 prefer=rack | run > a*3 b*3 | delete m2 | nodes c*3 | job 1 | run > a""",
    "so in wider domains": """
        nodes z.a*5 z.b*5 z.c*5 | nodes z.b:1 | job 8 prefer=rack,zone | run > z.a*5 z.b*3 | crash m1 | job 1 | run >
        z.b""",
    # A free rack of the group comes before an empty one, though most are in that one's zone.
    "a later member stays beside the others": """
        nodes r.x.a*4 r.y.b*3 | job 7 prefer=rack,zone WITHIN | run > r.x.a*4 r.y.b*3 | delete m6 | nodes r.x.c | job 1
        | run > r.y.b""",
    # Beside the others' rack, which is full, two are free and two have some room.
    "ranks of a dead rack take the fewest": f"""
        nodes {"z.a z.b z.c z.d z.e z.f " * 2}{"z.a z.b z.e z.f " * 2} | job 8 LEVELS | run > z.a*4 z.b*4 | crash m0..3
        | job 4 | run > z.e*4""",
    # Of two racks with a member each later ones join the first, until its node goes.
    "a lost node changes the domain": """
        nodes b*2 | job 2 within=rack | run > b*2 | nodes b*4 | nodes b/a | job 1 | run | lose b-0 | run > b""",
    "nodes without the zone's label are no domain": """
        nodes n/x.a | job 1 within=zone prefer=rack | run > n | nodes n/?.a*2 | job 1 | run | nodes n/x.a*2 | run
        > n""",
    # The group begins again, domain included.
    "all have failed": "nodes a*2 b*3 | job 2 within=rack | run > a*2 | fail m0 m1 | pods a | run | job 2 | run > b*2",
}
# Of racks for members that differ: the nodes, the members, and how many of them are needed.
_UNEQUAL = {
    # The launcher fits nearly anywhere: how many of it a rack holds says nothing of the rack.
    "workers and their launcher": ("a:8*3 a:0@64*4 b:8*5", "3:8@4 1:0@.1 | run > a*4", 4),
    # A rack of 32 VFs holds a member with 8 and six with 2 at most 1.6 times, though each kind oftener.
    "by what all take in sum": ("a:8*4 b:8*2 b:6*5", "1:8 6:2 | run > a*7", 7),
    # Rack a has no room for the large member and holds the four small ones; rack b holds any two.
    "the most if none holds all": ("a:6*2 b:8@.002", "1:8@.001 4:2@.001 | run > a*4", 2),
    # Rack a has cpus for ten members, and VFs for one worker; rack b holds four workers.
    "room for many launchers holds but one": ("a:8@1 a:0@1*9 b:8@1*4", "1:0@1 4:8@1 | run > b*4", 2),
    "without the largest if enough others fit": ("a@6", "1:0@5 2:0@3 | run > a*2", 2),
}
_LOST_NODE = "nodes a:4 | job 2 within=rack | run > a*2 | lose a-0 | nodes b*2 | delete m1 | job 1 | run"
_OUTSIDE = "*were outside the group's topology domain*"
# What happens, what members are told then, and what happens next.
_REASONS = {
    # The cluster has room enough, and no rack has.
    "no rack holds all": (
        "nodes a*2 b*3 ? | job 4 within=rack | run",
        "group train: 3 of 4 members fit in rack 'b', the best domain: 0/6 nodes are available for the 4th member: "
        "1 node(s) had no label rack, 2 node(s) were outside the group's topology domain, 3 not enough free RDMA VFs.",
        "nodes c*4 | run > c*4",
    ),
    # No domain is nearer than another one: a node of each is too small in its own way, and one is in none.
    "no rack holds any": (
        "nodes a:1*2 b! ? | job 2 within=rack | run",
        "group train: 0 of 2 members fit: 0/4 nodes are available for the 1st member: 1 node(s) had no label rack, "
        "1 node(s) were unschedulable, 2 not enough free RDMA VFs.",
        "nodes c*2 | run > c*2",
    ),
    # Misspelt, or not set yet.
    "no node has the label": (
        "nodes n/?*2 | job 2 within=rack | run",
        "*0/2 nodes are available for the 1st member: 2 node(s) had no label rack.",
        "nodes n/a*2 | run > n*2",
    ),
    "the domain of a lost node is not ''": (
        "nodes a | job 1 within=rack | run > a | nodes *2 | lose a-0 | job 1 | run",
        _OUTSIDE,
        "run",
    ),
    "nor is that of a lost label": (
        "nodes a | job 1 within=rack | run > a | nodes *2 a/? | job 1 | run",
        _OUTSIDE,
        "run",
    ),
    # No domain is named as the best one.
    "until the node of a placed member comes back": (_LOST_NODE, f"* fit: 0/2 nodes {_OUTSIDE}", "nodes a:4 | run > a"),
    "until that member goes as well": (_LOST_NODE, _OUTSIDE, "delete m0 | job 1 | run > b*2"),
}


@pytest.mark.parametrize("has_ranks", [False, True])
@stories(
    _PLACES,
    WITHIN={"anywhere": "", "within a region": "within=region"},
    LEVELS={"in racks": "prefer=rack", "in both": "prefer=rack,zone", "in one zone": "within=zone prefer=rack"},
)
def test_where_a_group_is(life: Scene, story: str, *, has_ranks: bool) -> None:
    """The ranks, if the members have some, come in any order; they are those of an indexed Job."""
    life.ranks = Random(1) if has_ranks else None
    play(life, story)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(("nodes", "job", "least"), _UNEQUAL.values(), ids=_UNEQUAL)
def test_where_unequal_members_are(life: Scene, nodes: str, job: str, least: int, *, is_reversed: bool) -> None:
    words = nodes.split()[:: -1 if is_reversed else 1]
    play(life, f"nodes {' '.join(words)} | job within=rack min={least} {job}")


@pytest.mark.parametrize(("story", "message", "sequel"), _REASONS.values(), ids=_REASONS)
def test_why_a_group_waits_and_for_what(life: Scene, story: str, message: str, sequel: str) -> None:
    play(life, story)
    assert fnmatchcase(message_of(life.decided), message)
    play(life, sequel)


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

    life.job(*random.sample(["1:8"] * large + ["1:2"] * small, count), within="rack")
    enough = {rack: holds(hosts) for rack, hosts in racks.items() if holds(hosts) >= count}
    smallest = [" ".join([rack] * count) for rack, room in enough.items() if room == min(enough.values())]
    assert racks_of_members(life.work()) in (smallest or [""])


def test_a_label_that_is_only_preferred_is_no_reason(life: Scene) -> None:
    """By any bound two PFs could hold three members that differ, and they hold two: the leaf is tried, and its rack."""
    life.build("a.l:4+4 b.?:4+4", ("rack", "leaf"))
    life.ask(*([{"min_tx_rate": rate}] for rate in (50_000, 50_000, 45_000)), within="rack", prefer=["leaf"])
    best = "2 of 3 members fit in rack 'a', the best domain: 0/2 nodes"
    assert fnmatchcase(message_of(life.work()), f"*{best}*1 node(s) were outside the group's topology domain*")


def test_the_topology_of_a_pod_group_is_required(life: Scene) -> None:
    """Its one key is the label that all members share."""
    life.pod_group(schedulingPolicy={"gang": {"minCount": 3}}, schedulingConstraints={"topology": [{"key": "rack"}]})
    life.build("n/?*3")
    life.see(*(life.member(f"m{k}", "", spec={"schedulingGroup": {"podGroupName": "train"}}) for k in range(3)))
    reason = "0/3 nodes are available for the 1st member: 3 node(s) had no label rack."
    play(life, "run")
    assert message_of(life.decided).endswith(reason)
    play(life, "nodes a*2 n/b*3 | run > n*3")


def test_a_member_that_is_bound_elsewhere_during_a_decision_determines_the_domain(life: Scene) -> None:
    """Somebody else has bound it, between two portions: the group must not be in two racks."""
    play(life, "nodes a*25 b*25 | job 20 within=rack")
    assert life.machine.step(life.now) == []
    life.see(life.member("by-hand", life.group, node="b-24", request=[]))
    play(life, "run > b*20")


def test_nobody_joins_in_the_domain_of_a_node_that_has_taken_the_row_of_a_placed_members(life: Scene) -> None:
    """Its node goes and another one comes during a decision, which has three levels to try before the rack."""
    life, levels = life.successor(Machine("mooring", portion=1)), ["rack", "hall", "spine", "leaf"]
    life.build("a/a.a.a.a", levels)
    play(life, f"job 1 within=rack prefer={','.join(levels[:0:-1])} | run > a")
    life.build("b/b.b.b.b*2", levels)
    life.job("2")
    assert life.machine.step(life.now) == []
    row = life.machine.cache.nodes.row_of["a-0"]
    life.remove_node("a-0")
    life.build("c/b.b.b.b", levels)
    assert life.machine.cache.nodes.row_of["c-0"] == row
    assert binds(life.work()) == []


def test_of_domains_with_as_many_placed_members_the_first_by_name_is_tried(life: Scene) -> None:
    """Labels have changed since. The order of a set of names is another one in each process; so are 20 labels' here."""
    keys, nodes = [f"level-{number}" for number in range(20)], [f"n{number}-0" for number in range(8)]
    life.build(" ".join(f"n{n}/" + ".".join(f"{k}-{n}" for k in range(20)) for n in range(8)), keys)
    for number, key in enumerate(keys):
        group = Group(GroupKey("annotation", "default", "train"), 8, within=key)
        (domain,) = domains_within(group, nodes[::-1], life.machine.cache.nodes)
        assert domain.labels == ((key, f"{number}-0"),)


def test_of_domains_that_hold_as_many_that_of_the_first_node_is_tried_first(life: Scene) -> None:
    """Whatever labels the nodes have had before: a scheduler that starts now sees none of these."""
    life.build("n0/before*2 n1/a*2")
    # Some group has asked for the label.
    life.machine.cache.nodes.label("rack")
    play(life, "nodes n0/b*2 | job 2 within=rack | run > n0*2")
