"""Groups and topology domains: one value of a node label for all members, the smallest domain that holds the group."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups.domains import domains_within
from scheduler.kube.group import Group, GroupKey
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds, changed, told

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
RACK, LEAF = "topology.kubernetes.io/rack", "network.topology.nvidia.com/leaf"


class Racks(Life):
    """Nodes in racks, each with as many VFs as one member wants."""

    def rack(self, rack: str, count: int, leaf: str = "", vfs: int = 2, **labels: str) -> None:
        for number in range(count):
            own = {RACK: rack, **labels} | ({LEAF: leaf} if leaf else {})
            self.nodes(f"{rack}{leaf}-{labels.get('zone', '')}{number}", labels=own, vfs=vfs)

    def job(self, count: int, least: int = 0, **fields: Any) -> list[Pod]:
        group = json.dumps({"name": "train", "min": least or count, **fields})
        members = [self.member(f"m{number}", group) for number in range(count)]
        self.see(*members)
        return members

    def placed(self, later_s: float = 0.0) -> list[str]:
        """Do all that is due; return the nodes of those that are bound, without their numbers."""
        made = binds(self.work(later_s))
        self.last = made
        return sorted(one.assigned.node.rpartition("-")[0] for one in made)


@pytest.fixture
def racks(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Racks:
    return Racks(machine, make_node, make_pf, make_pod)


def test_all_members_share_the_value_of_the_label(racks: Racks) -> None:
    """The cluster has room enough, and no rack has: nobody is placed, and the members are told where most would be."""
    racks.rack("a", 2)
    racks.rack("b", 3)
    racks.nodes("loose")
    racks.job(4, within=RACK)
    instructions = racks.work()
    assert binds(instructions) == []
    assert set(told(instructions).values()) == {
        f"group train: 3 of 4 members fit in {RACK} 'b', the best domain: 0/6 nodes are available for the 4th member: "
        f"1 node(s) had no label {RACK}, 2 node(s) were outside the group's topology domain, "
        "3 not enough free RDMA VFs."
    }
    racks.rack("c", 4)
    assert racks.placed(1.0) == ["c"] * 4


def test_where_no_member_fits_all_nodes_are_the_reason(racks: Racks) -> None:
    """No domain is nearer than another one: a node of each is too small in its own way, and one is in none."""
    racks.rack("a", 2, vfs=1)
    racks.nodes("b-0", labels={RACK: "b"}, spec={"unschedulable": True})
    racks.nodes("loose")
    racks.job(2, within=RACK)
    instructions = racks.work()
    assert binds(instructions) == []
    assert set(told(instructions).values()) == {
        "group train: 0 of 2 members fit: 0/4 nodes are available for the 1st member: "
        f"1 node(s) had no label {RACK}, 1 node(s) were unschedulable, 2 not enough free RDMA VFs."
    }
    racks.rack("c", 2)
    assert racks.placed(1.0) == ["c"] * 2


@pytest.mark.parametrize("is_pod_group", [False, True])
def test_where_no_node_has_the_label_that_is_the_reason(racks: Racks, is_pod_group: bool) -> None:
    """Misspelt, or not set yet: once the nodes have it, the group is placed."""
    racks.nodes("n-1", "n-2")
    if is_pod_group:
        racks.pod_group(schedulingPolicy={"gang": {"minCount": 2}}, schedulingConstraints={"topology": [{"key": RACK}]})
        spec = {"schedulingGroup": {"podGroupName": "train"}}
        racks.see(*(racks.member(f"m{number}", "", spec=spec) for number in range(2)))
    else:
        racks.job(2, within=RACK)
    found = racks.work()
    assert binds(found) == []
    (message,) = set(told(found).values())
    assert f"0/2 nodes are available for the 1st member: 2 node(s) had no label {RACK}." in message
    racks.nodes("n-1", "n-2", labels={RACK: "a"})
    assert racks.placed(10.0) == ["n", "n"]


def test_a_label_that_is_only_preferred_is_no_reason(racks: Racks) -> None:
    """By any bound two PFs could hold three members that differ, and they hold two: the leaf is tried, and its rack."""
    for name, labels in (("a-0", {RACK: "a", LEAF: "l"}), ("b-0", {RACK: "b"})):
        node = racks.make_node(name, (racks.make_pf(0), racks.make_pf(1)), labels=labels)
        racks.machine.nodes(Changed(Identity(name), node), racks.now)
    rates = (50_000, 50_000, 45_000)
    group = json.dumps({"name": "train", "min": 3, "within": RACK, "prefer": [LEAF]})
    racks.see(
        *(racks.member(f"m{number}", group, request=[{"min_tx_rate": rate}]) for number, rate in enumerate(rates))
    )
    (message,) = set(told(racks.work()).values())
    assert f"2 of 3 members fit in {RACK} 'a', the best domain: 0/2 nodes" in message
    assert "1 node(s) were outside the group's topology domain" in message


def test_the_smallest_domain_that_holds_the_whole_group_is_taken(racks: Racks) -> None:
    """The larger one stays free for a larger group; free cpu is not what counts."""
    racks.rack("large", 6)
    racks.rack("cpus", 5, vfs=1)
    racks.rack("small", 3)
    racks.job(3, within=RACK)
    assert racks.placed() == ["small"] * 3


def test_a_domain_holds_as_many_members_as_its_vfs_allow(racks: Racks) -> None:
    """Three nodes for two members each are a smaller domain than two nodes for four each."""
    racks.rack("wide", 2, vfs=8)
    racks.rack("small", 3, vfs=4)
    racks.job(6, within=RACK)
    assert racks.placed() == ["small"] * 6


def test_what_a_domain_holds_is_counted_in_members_and_not_in_vfs(racks: Racks) -> None:
    """Five nodes for one pod each are a larger domain than two nodes with fewer VFs, for two members each."""
    racks.nodes(*(f"pods-{number}" for number in range(5)), vfs=8, labels={RACK: "pods"}, allocatable={"pods": "1"})
    racks.rack("small", 2, vfs=4)
    racks.job(4, within=RACK)
    assert racks.placed() == ["small"] * 4


def test_racks_of_one_name_in_different_zones_are_counted_apart(racks: Racks) -> None:
    """Together they would be the smaller domain, and hold nobody."""
    racks.rack("1", 2, zone="x")
    racks.rack("1", 3, zone="y")
    racks.rack("2", 6, zone="y")
    racks.job(3, within="zone", prefer=[RACK])
    assert racks.placed() == ["1"] * 3


def test_a_group_that_fits_nowhere_as_a_whole_starts_with_as_many_as_it_needs(racks: Racks) -> None:
    """In the domain that holds the most."""
    racks.rack("a", 2)
    racks.rack("b", 3)
    racks.job(4, least=2, within=RACK)
    assert racks.placed() == ["b"] * 3


def test_the_narrowest_level_on_which_one_domain_holds_the_group_is_taken(racks: Racks) -> None:
    """A leaf if one does, else a rack, else any nodes: what is preferred is not required."""
    racks.rack("r", 2, leaf="l1")
    racks.rack("r", 2, leaf="l2")
    racks.rack("s", 3, leaf="l3")
    racks.job(3, prefer=[LEAF, RACK])
    assert racks.placed() == ["sl3"] * 3
    racks.see(*(racks.member(group=json.dumps({"name": "b", "min": 4, "prefer": [LEAF, RACK]})) for _ in range(4)))
    assert racks.placed() == ["rl1", "rl1", "rl2", "rl2"]


def test_what_is_preferred_keeps_nobody_from_starting(racks: Racks) -> None:
    """Without a domain that is large enough the whole cluster serves."""
    racks.rack("a", 2)
    racks.rack("b", 2)
    racks.job(4, prefer=[RACK])
    assert racks.placed() == ["a", "a", "b", "b"]


def test_without_a_domain_that_is_large_enough_the_fewest_are_filled_and_consecutive_ranks_are_together(
    racks: Racks,
) -> None:
    """Three racks would do as well as two; the members' indexes are those of an indexed Job."""
    for rack, count in (("a", 2), ("b", 4), ("c", 2), ("d", 3)):
        racks.rack(rack, count)
    group = json.dumps({"name": "train", "min": 7, "prefer": [RACK]})
    for number in random.Random(1).sample(range(7), 7):
        labels = {"labels": {"batch.kubernetes.io/job-completion-index": f"{number}"}}
        racks.see(racks.member(f"m{number}", group, metadata=labels))
    made = binds(racks.work())
    by_rank = sorted((one.pod_info.pod.metadata.name, one.assigned.node[0]) for one in made)
    assert [rack for _, rack in by_rank] == ["b"] * 4 + ["d"] * 3


def test_of_as_few_domains_those_that_just_fit_are_filled(racks: Racks) -> None:
    """Two whole racks of four, and the larger one stays for a job of six."""
    for rack, count in (("a", 6), ("b", 4), ("c", 4)):
        racks.rack(rack, count)
    racks.job(8, prefer=[RACK])
    assert racks.placed() == ["b"] * 4 + ["c"] * 4


def test_on_each_level_the_fewest_domains_are_filled_one_inside_the_other(racks: Racks) -> None:
    """Two of three racks, and in each its leaves one after another, by the order of the ranks."""
    for rack in "ab":
        for number in range(3):
            for leaf in ("1", "2"):
                racks.nodes(f"{rack}{leaf}-{number}", labels={RACK: rack, LEAF: rack + leaf})
    racks.rack("c", 2)
    group = json.dumps({"name": "train", "min": 9, "prefer": [LEAF, RACK]})
    racks.see(*(racks.member(f"m{number}", group) for number in range(9)))
    made = {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(racks.work())}
    assert [made[f"m{number}"].partition("-")[0] for number in range(9)] == ["a1"] * 3 + ["a2"] * 3 + ["b1"] * 3


def test_a_rank_that_is_made_again_stays_in_the_racks_of_the_others(racks: Racks) -> None:
    """No rack holds all of them, and a third one has more room."""
    for rack, count in (("a", 3), ("b", 3), ("z", 2)):
        racks.rack(rack, count)
    group = json.dumps({"name": "train", "min": 6, "prefer": [RACK]})
    racks.see(*(racks.member(f"m{number}", group) for number in range(6)))
    bound = racks.bound(*binds(racks.work()))
    racks.gone(bound[2])
    racks.rack("c", 3)
    racks.see(racks.member("again", group))
    assert racks.placed(1.0) == ["a"]


def test_names_of_racks_repeat(racks: Racks) -> None:
    """A domain is its label's value and those of all wider levels: rack 1 of one zone is not rack 1 of another."""
    racks.rack("1", 2, zone="x")
    racks.rack("1", 2, zone="y")
    racks.job(3, within="zone", prefer=[RACK])
    assert racks.placed() == []
    racks.rack("2", 1, zone="y")
    racks.work(1.0)
    assert {one.node.partition("-")[2][0] for one in racks.machine.cache.assigned_pods()} == {"y"}


def test_a_later_member_joins_the_domain_of_those_that_are_placed(racks: Racks) -> None:
    """It waits for room there rather than go elsewhere."""
    racks.rack("a", 2)
    racks.rack("b", 5)
    members = racks.job(2, within=RACK)
    assert racks.placed() == ["a", "a"]
    racks.bound(*racks.last)
    late = racks.member("late", members[0].annotations["mooring.dev/group"])
    racks.see(late)
    assert racks.placed() == []
    racks.rack("a", 3)
    assert racks.placed(1.0) == ["a"]


def test_a_member_that_is_bound_elsewhere_during_a_decision_says_where_the_others_go(racks: Racks) -> None:
    """Somebody else has bound it, between two portions: the group must not be in two racks."""
    for rack in "ab":
        racks.rack(rack, 25)
    racks.job(20, within=RACK)
    assert racks.machine.step(racks.now) == []
    group = json.dumps({"name": "train", "min": 20, "within": RACK})
    racks.see(racks.member("by-hand", group, node="b-24", request=[]))
    assert racks.placed() == ["b"] * 20


def test_a_member_that_comes_again_joins_the_leaf_that_the_others_share(racks: Racks) -> None:
    """What was preferred holds for it too, as long as there is room."""
    racks.rack("r", 2, leaf="l1")
    racks.rack("r", 5, leaf="l2")
    members = racks.job(2, prefer=[LEAF])
    assert racks.placed() == ["rl1", "rl1"]
    bound = racks.bound(*racks.last)
    racks.gone(bound[0])
    racks.see(racks.member("again", members[0].annotations["mooring.dev/group"]))
    assert racks.placed(1.0) == ["rl1"]


@pytest.mark.parametrize("how", ["the node comes back", "the member goes"])
def test_nobody_joins_a_member_whose_node_is_gone_in_another_domain(racks: Racks, how: str) -> None:
    """Its domain is not known until its node is made again, or until it is gone as well."""
    racks.rack("a", 1, vfs=4)
    first, second = racks.job(2, within=RACK)
    assert racks.placed() == ["a", "a"]
    first, second = racks.bound(*racks.last)
    racks.remove_node("a-0")
    racks.rack("b", 2)
    racks.gone(second)
    again = racks.member("again", json.dumps({"name": "train", "min": 2, "within": RACK}))
    racks.see(again)
    instructions = racks.work(10.0)
    assert binds(instructions) == []
    assert "were outside the group's topology domain" in told(instructions)["again"]
    if how == "the node comes back":
        racks.rack("a", 1, vfs=4)
        assert racks.placed(10.0) == ["a"]
    else:
        racks.gone(first)
        racks.see(racks.member("last", json.dumps({"name": "train", "min": 2, "within": RACK})))
        assert racks.placed(10.0) == ["b", "b"]


def test_nobody_joins_in_the_domain_of_a_node_that_has_taken_the_row_of_a_placed_members(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Its node goes and another one comes during a decision, which has three levels to try before the rack."""
    racks = Racks(Machine("mooring", portion=1), make_node, make_pf, make_pod)
    levels = [LEAF, "spine", "hall"]
    racks.nodes("a-0", labels={RACK: "a"} | dict.fromkeys(levels, "a"))
    racks.job(1, within=RACK, prefer=levels)
    assert racks.placed() == ["a"]
    racks.bound(*racks.last)
    racks.nodes("b-0", "b-1", labels={RACK: "b"} | dict.fromkeys(levels, "b"))
    racks.job(2, least=1, within=RACK, prefer=levels)
    assert racks.machine.step(racks.now) == []
    row = racks.machine.cache.nodes.row_of["a-0"]
    racks.remove_node("a-0")
    racks.nodes("b-2", labels={RACK: "b"} | dict.fromkeys(levels, "b"))
    assert racks.machine.cache.nodes.row_of["b-2"] == row
    assert racks.placed() == []


def test_a_node_that_goes_wakes_a_group_whose_domain_is_another_one_without_it(racks: Racks) -> None:
    """Labels have changed since: of two racks with a member each later ones join the first, until its node goes."""
    racks.rack("b", 2)
    racks.job(2, within=RACK)
    assert racks.placed() == ["b", "b"]
    racks.bound(*racks.last)
    racks.nodes("b-0", labels={RACK: "a"})
    racks.rack("b", 4)
    racks.nodes("b-0", labels={RACK: "a"})
    racks.see(racks.member("late", json.dumps({"name": "train", "min": 2, "within": RACK})))
    assert racks.placed(10.0) == []
    racks.remove_node("b-0")
    assert racks.placed(10.0) == ["b"]


def test_when_no_member_is_placed_the_domain_is_chosen_again(racks: Racks) -> None:
    """The group begins again, domain included."""
    racks.rack("a", 2)
    racks.rack("b", 3)
    racks.job(2, within=RACK)
    assert racks.placed() == ["a", "a"]
    for pod in racks.bound(*racks.last):
        racks.see(changed(pod, status={"phase": "Failed"}))
    racks.see(racks.make_pod("taken", [{}, {}], spec={"nodeSelector": {RACK: "a"}}))
    racks.work(1.0)
    racks.job(2, within=RACK)
    assert racks.placed(1.0) == ["b", "b"]


def test_of_domains_with_as_many_placed_members_the_first_by_name_is_tried(racks: Racks) -> None:
    """Labels have changed since. The order of a set of names is another one in each process; so are 20 labels' here."""
    keys = [f"example.com/level-{number}" for number in range(20)]
    nodes = [f"n{number}" for number in range(8)]
    for number, name in enumerate(nodes):
        racks.nodes(name, labels={key: f"{key.rpartition('-')[2]}-{number}" for key in keys})
    found = []
    for key in keys:
        group = Group(GroupKey("annotation", "default", "train"), 8, within=key)
        (domain,) = domains_within(group, nodes[::-1], racks.machine.cache.nodes)
        found.append(domain.labels)
    assert found == [((key, f"{number}-0"),) for number, key in enumerate(keys)]


def test_of_domains_that_hold_as_many_that_of_the_first_node_is_tried_first(racks: Racks) -> None:
    """Whatever labels the nodes have had before: a scheduler that starts now sees none of these."""
    racks.nodes("n0-0", "n0-1", labels={RACK: "before"})
    racks.nodes("n1-0", "n1-1", labels={RACK: "a"})
    # Some group has asked for the label.
    racks.machine.cache.nodes.label(RACK)
    racks.nodes("n0-0", "n0-1", labels={RACK: "b"})
    racks.job(2, within=RACK)
    assert racks.placed() == ["n0", "n0"]


def test_a_pod_groups_topology_is_required(racks: Racks) -> None:
    """Its one key is the label that all members share."""
    racks.rack("a", 2)
    racks.rack("b", 3)
    racks.pod_group(schedulingPolicy={"gang": {"minCount": 3}}, schedulingConstraints={"topology": [{"key": RACK}]})
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    racks.see(*(racks.member(f"m{number}", "", spec=spec) for number in range(3)))
    assert racks.placed() == ["b"] * 3


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_domain_whose_name_is_empty_is_not_that_of_nodes_without_the_label(racks: Racks, is_gone: bool) -> None:
    """A label's value may be empty. Nobody knows the rack of a placed member whose node is gone, or lost its label."""
    racks.rack("a", 1)
    racks.job(1, within=RACK)
    racks.placed()
    racks.bound(*racks.last)
    racks.rack("", 2)
    if is_gone:
        racks.remove_node("a-0")
    else:
        racks.nodes("a-0")
    racks.see(racks.member("late", json.dumps({"name": "train", "min": 1, "within": RACK})))
    found = racks.work(1.0)
    assert binds(found) == []
    assert "outside the group's topology domain" in told(found)["late"]


def test_a_domain_may_have_an_empty_name(racks: Racks) -> None:
    """It is one like any other."""
    racks.rack("a", 1)
    racks.rack("", 2)
    racks.job(2, within=RACK)
    assert racks.placed() == ["", ""]


def test_a_wider_level_whose_label_some_nodes_lack_keeps_nobody_from_the_narrower_ones(racks: Racks) -> None:
    """topograph sets no label for a tier that a cluster does not have: four ranks are in one rack all the same."""
    for rack, zone in (("a", ""), ("b", ""), ("c", "z")):
        for number in range(4):
            racks.nodes(f"{rack}-{number}", labels={RACK: rack} | ({"zone": zone} if zone else {}), vfs=2)
    racks.job(4, prefer=[RACK, "zone", "region"])
    assert len(set(racks.placed())) == 1


@pytest.mark.parametrize(
    "levels", [{"prefer": [RACK]}, {"prefer": [RACK, "zone"]}, {"prefer": [RACK], "within": "zone"}]
)
def test_ranks_of_a_rack_that_died_take_the_fewest_racks(racks: Racks, levels: dict[str, Any]) -> None:
    """Beside the others' rack, which is full, one is free and three have some room."""
    for number in range(4):
        for rack in "abcdef":
            if rack not in "cd" or number < 2:
                racks.nodes(f"{rack}-{number}", labels={RACK: rack, "zone": "z"})
    group = json.dumps({"name": "train", "min": 8, **levels})
    racks.see(*(racks.member(f"m{number}", group) for number in range(8)))
    bound = racks.bound(*binds(racks.work()))
    dead = (bound[0].spec.node_name or "")[0]
    for number in range(4):
        racks.remove_node(f"{dead}-{number}")
    racks.gone(*(pod for pod in bound if (pod.spec.node_name or "").startswith(dead)))
    racks.see(*(racks.member(f"again{number}", group) for number in range(4)))
    again = racks.placed(1.0)
    assert len(again) == 4
    assert len(set(again)) == 1


def test_a_rank_that_is_made_again_stays_in_the_racks_of_the_others_inside_a_wider_domain(racks: Racks) -> None:
    """All are in one zone, on two racks of it; a third one is seen first."""
    for rack in "abc":
        for number in range(5):
            racks.nodes(f"{rack}-{number}", labels={RACK: rack, "zone": "z"})
    racks.nodes("b-0", labels={RACK: "b", "zone": "z"}, vfs=1)
    group = json.dumps({"name": "train", "min": 8, "prefer": [RACK, "zone"]})
    racks.see(*(racks.member(f"m{number}", group) for number in range(8)))
    bound = racks.bound(*binds(racks.work()))
    used = {(pod.spec.node_name or "")[0] for pod in bound}
    lost = bound[1].spec.node_name or ""
    racks.remove_node(lost)
    racks.gone(bound[1])
    racks.see(racks.member("again", group))
    assert set(racks.placed(1.0)) <= used


@pytest.mark.parametrize("within", [{}, {"within": "region"}])
def test_a_member_that_is_made_again_stays_beside_the_others(racks: Racks, within: dict[str, str]) -> None:
    """Its group has racks in two zones: a free rack of the group comes before an empty one, though most are there."""
    for rack, zone, count in (("a", "x", 4), ("b", "y", 3)):
        for number in range(count):
            racks.nodes(f"{rack}-{number}", labels={RACK: rack, "zone": zone, "region": "r"})
    group = json.dumps({"name": "train", "min": 7, "prefer": [RACK, "zone"], **within})
    racks.see(*(racks.member(f"m{number}", group) for number in range(7)))
    bound = racks.bound(*binds(racks.work()))
    racks.gone(next(pod for pod in bound if (pod.spec.node_name or "").startswith("b")))
    racks.nodes("c-0", labels={RACK: "c", "zone": "x", "region": "r"})
    racks.see(racks.member("again", group))
    assert racks.placed(1.0) == ["b"]
