"""Groups and rails: interface k of every member on one network, or on the k-th network of its node."""

import itertools
import json
import random
from collections.abc import Callable

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.inventory import Pf
from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.scheduler.group_life import Life, binds, told, victims

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]


class Railed(Life):
    """Nodes whose PFs are on networks of any names."""

    def node(self, name: str, *networks: str, vfs: int = 1, **down: bool) -> None:
        pfs = tuple(
            self.make_pf(index, vfs, network=network, up=down.get(network, True))
            for index, network in enumerate(networks)
        )
        self.machine.nodes(Changed(Identity(name), self.make_node(name, pfs, labels={"name": name})), self.now)

    def taken(self, node: str, *networks: str) -> None:
        """Let other pods have a VF on each of these networks of a node."""
        spec = {"nodeSelector": {"name": node}}
        self.see(*(self.make_pod("", [{"network": network}], spec=spec) for network in networks))
        assert len(self.bound(*binds(self.work()))) == len(networks)

    def job(self, count: int, rails: str, request: object, **fields: object) -> None:
        group = json.dumps({"name": "train", "min": count, "rails": rails, **fields})
        self.see(*(self.member(f"m{number}", group, request=request) for number in range(count)))


@pytest.fixture
def railed(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Railed:
    return Railed(machine, make_node, make_pf, make_pod)


def _networks(instructions: list[Instruction]) -> dict[str, list[str]]:
    """Return the networks of each bound member's interfaces, in their order."""
    return {one.pod_info.pod.metadata.name: _of(one) for one in binds(instructions)}


def _of(decision: Bind) -> list[str]:
    return [vf.network for vf in read_assignment(decision.annotations[names.ASSIGNMENT]).vfs]


def test_interface_k_lies_on_the_kth_network_of_its_node(railed: Railed) -> None:
    """In natural order of the names, whatever the order of the PFs, and counting networks that are down."""
    railed.node("n1", "rail10", "rail2", "rail1")
    railed.node("n2", "rail1", "rail2", "rail10", rail1=False)
    railed.job(2, "index", [{}, {}, {}])
    assert _networks(railed.work()) == {name: ["rail1", "rail2", "rail10"] for name in ("m0", "m1")}


def test_a_network_that_is_down_keeps_its_number(railed: Railed) -> None:
    """The next one does not move up: a member with a rate on it fits nowhere."""
    railed.node("n1", "rail1", "rail2", rail1=False)
    railed.job(1, "index", [{"min_tx_rate": 1000}, {}])
    (message,) = told(railed.work()).values()
    assert message.endswith("1 node(s) had no PF with its link up among those on network number 1.")


@pytest.mark.parametrize("rails", ["same", "index"])
def test_where_no_member_fits_on_any_network_all_nodes_are_the_reason(railed: Railed, rails: str) -> None:
    """Not those of the domain that was tried last, and not the networks that were tried there."""
    railed.node("n1", "rail1")
    railed.node("n2", "rail2")
    railed.job(2, rails, [{"pf": "none*"}], within="name")
    assert set(told(railed.work()).values()) == {
        "group train: 0 of 2 members fit: 0/2 nodes are available for the 1st member: "
        "2 node(s) had no PF named 'none*'."
    }


def test_interface_k_of_all_members_lies_on_one_network(railed: Railed) -> None:
    """Each node alone would allow more; the group needs what all nodes have in common."""
    railed.node("n1", "rail0", "rail1", vfs=1)
    railed.node("n2", "rail1", "rail2", vfs=1)
    railed.job(2, "same", [{}])
    assert _networks(railed.work()) == {"m0": ["rail1"], "m1": ["rail1"]}


def test_a_group_without_a_common_network_waits(railed: Railed) -> None:
    """It would fit if its members' interfaces might lie on different networks."""
    railed.node("n1", "rail0")
    railed.node("n2", "rail1")
    railed.job(2, "same", [{}])
    assert binds(railed.work()) == []
    railed.node("n3", "rail0")
    assert _networks(railed.work(1.0)) == {"m0": ["rail0"], "m1": ["rail0"]}


def test_while_no_node_has_a_network_nobody_is_bound(railed: Railed) -> None:
    """A member without its VFs is no member that fits; the first inventory brings them back."""
    railed.machine.nodes(Changed(Identity("n1"), railed.make_node("n1")), railed.now)
    railed.job(2, "same", [{}])
    found = railed.work()
    assert binds(found) == []
    assert set(told(found)) == {"m0", "m1"}
    railed.node("n1", "rail0", vfs=2)
    assert _networks(railed.work(1.0)) == {"m0": ["rail0"], "m1": ["rail0"]}


def test_the_kth_interface_gets_the_kth_network_where_there_are_enough(railed: Railed) -> None:
    """Each interface has a network of its own, in natural order."""
    railed.node("n1", "rail2", "rail1", vfs=4)
    railed.node("n2", "rail1", "rail2", vfs=4)
    railed.job(2, "same", [{}, {}])
    assert _networks(railed.work()) == {name: ["rail1", "rail2"] for name in ("m0", "m1")}


@pytest.mark.parametrize("count", [3, 4])
def test_beyond_min_as_many_are_placed_as_fit_on_one_network(railed: Railed, count: int) -> None:
    """Those that are left over would wait for room on the network of the first, which has none."""
    for name in ("n1", "n2", "n3"):
        railed.node(name, "rail0", "rail1")
    railed.taken("n1", "rail0")
    railed.taken("n2", "rail0")
    group = json.dumps({"name": "train", "min": 1, "rails": "same"})
    railed.see(*(railed.member(f"m{number}", group, request=[{}]) for number in range(count)))
    assert list(_networks(railed.work()).values()) == [["rail1"]] * 3


def test_members_whose_vfs_are_to_be_packed_have_all_on_one_network(railed: Railed) -> None:
    """As long as one has room for all of them."""
    railed.node("n1", "rail0", "rail1", vfs=4)
    railed.node("n2", "rail0", "rail1", vfs=4)
    group = json.dumps({"name": "train", "min": 4, "rails": "same"})
    annotations = {names.GROUP: group, names.REQUEST: "[{}, {}]", names.PLACEMENT: '{"pfs": "pack"}'}
    railed.see(*(railed.make_pod(f"m{number}", annotations=annotations) for number in range(4)))
    assert list(_networks(railed.work()).values()) == [["rail0", "rail0"]] * 4


def test_what_a_member_names_itself_holds(railed: Railed) -> None:
    """Its network is that of the interface; beside it placement goes on."""
    railed.node("n1", "rail0", "rail1", vfs=4)
    railed.node("n2", "rail0", "rail1", vfs=4)
    railed.job(2, "same", [{"network": "rail1"}, {}])
    found = _networks(railed.work())
    assert [networks[0] for networks in found.values()] == ["rail1", "rail1"]
    assert len({networks[1] for networks in found.values()}) == 1


def test_a_later_member_joins_the_rails_of_those_that_are_placed(railed: Railed) -> None:
    """Another network with room does not serve."""
    railed.node("n1", "rail0", "rail1")
    railed.job(1, "same", [{}])
    made = binds(railed.work())
    assert [_of(one) for one in made] == [["rail0"]]
    railed.bound(*made)
    group = json.dumps({"name": "train", "min": 1, "rails": "same"})
    railed.see(railed.member("late", group, request=[{}]))
    assert binds(railed.work()) == []
    railed.node("n2", "rail1", "rail0")
    assert _networks(railed.work(1.0)) == {"late": ["rail0"]}


def test_one_that_is_left_over_may_fit_on_a_network_that_the_placed_ones_have_left_open(railed: Railed) -> None:
    """The placed one has no interface. Nothing else happens in the cluster that would bring the other one back."""
    railed.node("n1", "raila", vfs=1)
    railed.node("n2", "railb", vfs=2)
    group = '{"name":"train","min":1,"rails":"same"}'
    railed.see(railed.member("plain", group, request=[]), railed.member("wide", group, request=[{}, {}]))
    assert {one.pod_info.pod.metadata.name for one in binds(railed.work())} == {"plain", "wide"}


_EIGHT = tuple(f"rail{number}" for number in range(8))


def test_the_networks_that_are_free_are_found_among_many(railed: Railed) -> None:
    """Two of eight rails are left on each node, the last ones in order."""
    for name in ("n1", "n2"):
        railed.node(name, *_EIGHT)
        railed.taken(name, *_EIGHT[:5], "rail6")
    railed.job(2, "same", [{}, {}])
    found = _networks(railed.work()).values()
    assert [sorted(networks) for networks in found] == [["rail5", "rail7"]] * 2
    assert len({tuple(networks) for networks in found}) == 1


@pytest.mark.parametrize("within", [{}, {"within": "rack"}])
def test_networks_that_only_one_rack_has_are_found(railed: Railed, within: dict[str, str]) -> None:
    """Each rack has a network of its own; the one with room comes last of forty."""
    for rack, number in itertools.product(range(40), range(2)):
        pfs = (railed.make_pf(vfs=int(rack == 39), network=f"rack{rack}"),)
        node = railed.make_node(f"n{rack}-{number}", pfs, labels={"rack": f"r{rack}"})
        railed.machine.nodes(Changed(Identity(node.metadata.name), node), railed.now)
    railed.job(2, "same", [{}], **within)
    assert _networks(railed.work()) == {"m0": ["rack39"], "m1": ["rack39"]}


@pytest.mark.parametrize("seed", range(40))
def test_common_networks_are_found_where_brute_force_finds_some(railed: Railed, seed: int) -> None:
    """Equal members, one on each node, of which each rail has at most one VF left."""
    rng = random.Random(seed)
    free = [{network for network in _EIGHT if rng.random() < 0.6} for _ in range(4)]
    for number, networks in enumerate(free):
        railed.node(f"n{number}", *_EIGHT)
        railed.taken(f"n{number}", *sorted(set(_EIGHT) - networks))
    count = rng.choice((2, 3))
    railed.job(3, "same", [{}] * count)
    exists = any(sum(set(chosen) <= one for one in free) >= 3 for chosen in itertools.combinations(_EIGHT, count))
    assert (len(set(map(tuple, _networks(railed.work()).values()))) == 1) == exists


def test_a_group_sends_others_away_where_its_networks_are_those_of_one_rack(railed: Railed) -> None:
    """Only the last of forty racks has VFs at all."""
    for rack, number in itertools.product(range(40), range(2)):
        pfs = (railed.make_pf(vfs=int(rack == 39), network=f"rack{rack}"),)
        node = railed.make_node(f"n{rack}-{number}", pfs)
        railed.machine.nodes(Changed(Identity(node.metadata.name), node), railed.now)
    railed.see(*(railed.make_pod(f"low{number}", [{}]) for number in range(2)))
    railed.bound(*binds(railed.work()))
    group = json.dumps({"name": "train", "min": 2, "rails": "same"})
    railed.see(*(railed.member(f"m{number}", group, request=[{}], spec={"priority": 10}) for number in range(2)))
    assert victims(railed.work()) == ["low0", "low1"]


@pytest.mark.parametrize("seed", range(20))
def test_a_group_sends_others_away_on_the_networks_that_less_important_pods_hold(railed: Railed, seed: int) -> None:
    """Of eight rails few are held by pods below the group; those of the others stay held."""
    rng = random.Random(seed)
    lower = sorted(rng.sample(_EIGHT, 3))
    for name in ("n1", "n2"):
        railed.node(name, *_EIGHT)
        railed.taken(name, *lower)
        spec = {"nodeSelector": {"name": name}, "priority": 10}
        others = [railed.make_pod("", [{"network": one}], spec=spec) for one in _EIGHT if one not in lower]
        railed.see(*others)
        assert len(railed.bound(*binds(railed.work()))) == 5
    group = json.dumps({"name": "train", "min": 2, "rails": "same"})
    railed.see(*(railed.member(f"m{number}", group, request=[{}] * 3, spec={"priority": 10}) for number in range(2)))
    assert len(victims(railed.work())) == 6


def test_networks_that_no_node_has_together_are_not_tried(
    make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """A network for each leaf, and more of them than choices that are tried or judged."""
    life = Life(Machine("mooring"), make_node, make_pf, make_pod)
    for number in range(160):
        pfs = tuple(life.make_pf(k, 2, network=f"leaf{number // 4}") for k in range(2))
        life.machine.nodes(Changed(Identity(f"n{number}"), life.make_node(f"n{number}", pfs)), life.now)
    group = json.dumps({"name": "train", "min": 4, "rails": "same"})
    life.see(*(life.member(f"m{k}", group, request=[{}] * 4) for k in range(4)))
    assert {int(one.assigned.node[1:]) // 4 for one in binds(life.work())} == {0}


@pytest.mark.parametrize(("needed", "placed"), [(2, 2), (3, 0)])
def test_a_member_whose_network_no_node_has_keeps_no_others_from_starting(
    railed: Railed, needed: int, placed: int
) -> None:
    """Unless it is needed: the interfaces of all lie on one network."""
    railed.node("n1", "rail1", vfs=4)
    group = json.dumps({"name": "train", "min": needed, "rails": "same"})
    requests: list[object] = [[{"network": "elsewhere"}], [{}], [{}]]
    railed.see(*(railed.member(f"m{number}", group, request=one) for number, one in enumerate(requests)))
    assert len(binds(railed.work())) == placed


def test_nor_from_sending_others_away(railed: Railed) -> None:
    railed.node("n1", "rail1", vfs=2)
    railed.taken("n1", "rail1", "rail1")
    group = json.dumps({"name": "train", "min": 2, "rails": "same"})
    requests: list[object] = [[{"network": "elsewhere"}], [{}], [{}]]
    spec = {"priority": 10}
    railed.see(*(railed.member(f"m{number}", group, request=one, spec=spec) for number, one in enumerate(requests)))
    assert len(victims(railed.work())) == 2


def test_members_with_more_interfaces_than_others_have_choices_of_their_own(railed: Railed) -> None:
    """Of 512 choices few hold the large one: on n1 both have their first interface on rail6."""
    vfs = (
        (("rail2", 1), ("rail2", 0), ("rail5", 1)),
        (("rail7", 1), ("rail6", 3), ("rail1", 0)),
        (("rail3", 1),),
        (("rail0", 0), ("rail2", 1)),
    )
    for number, of_node in enumerate(vfs):
        pfs = tuple(railed.make_pf(k, count, network=network) for k, (network, count) in enumerate(of_node))
        railed.machine.nodes(Changed(Identity(f"n{number}"), railed.make_node(f"n{number}", pfs)), railed.now)
    group = json.dumps({"name": "train", "min": 2, "rails": "same"})
    railed.see(railed.member("m0", group, request=[{}, {}, {}]), railed.member("m1", group, request=[{}]))
    assert {name: one[0] for name, one in _networks(railed.work()).items()} == {"m0": "rail6", "m1": "rail6"}
