"""Groups and rails: interface k of every member on one network, or on the k-th network of its node."""

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.annotations.pf_terms import Access
from scheduler.cycle.groups.group_snapshot import GroupSnapshot
from scheduler.cycle.instructions import Instruction
from tests.scheduler.cycle.groups.scene import Scene, message_of
from tests.scheduler.group_life import binds, told, victims
from tests.scheduler.story import play, stories
from tests.support.calls import count_calls

_EIGHT = tuple(f"rail{number}" for number in range(8))
# The last ones in order are free.
_TWO_FREE = " ".join(network if network in ("rail5", "rail7") else f"~{network}" for network in _EIGHT)
# A member ``b+?`` wants an interface on network b and one on any, ``-`` wants none.
_PLACES = {
    # In natural order of the names, whatever the order of the PFs, and counting networks that are down.
    "the kth network of its node": """
        wire n1 r10 r2 r1 | wire n2 r1! r2 r10 | come ?+?+? ?+?+? rails=index | run > r1+r2+r10 r1+r2+r10""",
    # Each node alone would allow more; the group needs what all nodes have in common.
    "one network for all members": "wire n1 a b | wire n2 b c | come ? ? rails=same | run > b b",
    # It would fit if its members' interfaces might lie on different networks.
    "a group without a common network waits": """
        wire n1 a | wire n2 b | come ? ? rails=same | run | wire n3 a | run > a a""",
    # Each interface has a network of its own, in natural order.
    "interface k is on the kth network": "wire n1 b:4 a:4 | wire n2 a:4 b:4 | come ?+? ?+? rails=same | run > a+b a+b",
    "a network that members name": "wire n1 a:4 b:4 | wire n2 a:4 b:4 | come b+? b+? rails=same | run > b+b b+b",
    # Another network with room does not serve.
    "a later member joins the others' network": """
        wire n1 a b | come ? rails=same min=1 | run > a | come ? | run | wire n2 b a | run > a""",
    # Nothing else happens in the cluster that would bring the wide one back.
    "a network that placed members leave open": "wire n1 a | wire n2 b:2 | come - ?+? rails=same min=1 | run > - b+b",
    "free networks among many": f"""
        wire n1 {_TWO_FREE} | wire n2 {_TWO_FREE} | come ?+? ?+? rails=same | run > rail5+rail7 rail5+rail7""",
    "one on no network keeps no others from starting": """
        wire n1 a:4 | come elsewhere ? ? rails=same min=2 | run > . a a""",
    "one whose network is full keeps no others": "wire n1 ~a b:2 | come a a b b rails=same min=2 | run > . . b b",
    "unless it is needed": "wire n1 a:4 | come elsewhere ? ? rails=same | run",
    # A member without its VFs is no member that fits; the first inventory brings them back.
    "while no node has a network nobody is bound": "wire n1 | come ? ? rails=same | run | wire n1 a:2 | run > a a",
    # Of 512 choices few hold the large one.
    "a member with more interfaces": """
        wire n0 c c:0 f | wire n1 h g:3 b:0 | wire n2 d | wire n3 a:0 c | come ?+?+? ? rails=same | run > g+h+g g""",
}


def _requests(words: Iterable[str]) -> list[list[dict[str, str]]]:
    members = [[] if word == "-" else word.split("+") for word in words]
    return [[{} if network == "?" else {"network": network} for network in member] for member in members]


def _networks(instructions: Iterable[Instruction], members: Iterable[str] = ()) -> str:
    """Return the networks of each bound member's interfaces; a dot for each other one of these members, if any is."""
    networks = dict[str, str]()
    for one in binds(instructions):
        text = one.annotations.get(names.ASSIGNMENT)
        vfs = read_assignment(text).vfs if text else ()
        networks[one.pod_info.pod.metadata.name] = "+".join(vf.network for vf in vfs) or "-"
    return " ".join(networks.get(name, ".") for name in members or sorted(networks)) if networks else ""


def _forty_racks(life: Scene) -> None:
    """Make racks with a network each, of which only the last one has VFs."""
    for rack, number in itertools.product(range(40), range(2)):
        life.wire(f"n{rack}-{number} rack{rack}:{int(rack == 39)}", labels={"rack": f"r{rack}"})


class RailStory:
    """Nodes by their networks, and members by those that they want."""

    def __init__(self, life: Scene) -> None:
        self.life = life

    def wire(self, *words: str) -> None:
        self.life.wire(" ".join(words))

    def come(self, *members: str, **group: str) -> None:
        self.life.ask(*_requests(members), **group)

    def run(self) -> str:
        """Return the networks of each member that waited, ``.`` if it is not bound; if none is, all are told why."""
        decided = self.life.work(1.0)
        waiting = [name for name in self.life.wants if name not in self.life.running]
        networks = _networks(decided, waiting)
        assert networks or list(told(decided)) == waiting
        self.life.bound(*binds(decided))
        return networks


@stories(_PLACES)
def test_the_networks_of_a_group(life: Scene, story: str) -> None:
    play(RailStory(life), story)


@pytest.mark.parametrize("rails", ["same", "index"])
def test_where_no_member_fits_on_any_network_all_nodes_are_the_reason(life: Scene, rails: str) -> None:
    """Not those of the domain that was tried last, and not the networks that were tried there."""
    life.wire("n1 rail1")
    life.wire("n2 rail2")
    life.ask(*[[{"pf": "none*"}]] * 2, rails=rails, within="name")
    reason = "0/2 nodes are available for the 1st member: 2 node(s) had no PF named 'none*'."
    assert message_of(life.work()) == f"group train: 0 of 2 members fit: {reason}"


def test_a_network_that_is_down_keeps_its_number(life: Scene) -> None:
    """The next one does not move up: a member with a rate on it fits nowhere."""
    life.wire("n1 rail1! rail2")
    life.ask([{"min_tx_rate": 1000}, {}], rails="index")
    reason = "1 node(s) had no PF with its link up among those on network number 1."
    assert message_of(life.work()).endswith(reason)


def test_members_whose_vfs_are_to_be_packed_have_all_on_one_network(life: Scene) -> None:
    """As long as one has room for all of them."""
    life.wire("n1 a:4 b:4")
    life.wire("n2 a:4 b:4")
    group = '{"name":"train","min":4,"rails":"same"}'
    annotations = {names.GROUP: group, names.REQUEST: "[{}, {}]", names.PLACEMENT: '{"pfs": "pack"}'}
    life.see(*(life.make_pod(f"m{number}", annotations=annotations) for number in range(4)))
    assert _networks(life.work()) == "a+a a+a a+a a+a"


@pytest.mark.parametrize("within", [{}, {"within": "rack"}])
def test_networks_that_only_one_rack_has_are_found(life: Scene, within: Any) -> None:
    """The one with room comes last of forty."""
    _forty_racks(life)
    life.ask([{}], [{}], rails="same", **within)
    assert _networks(life.work()) == "rack39 rack39"


def test_networks_of_other_namespaces_are_not_tried(life: Scene) -> None:
    """They have more room, and there are more of them than choices that are tried."""
    for number in range(40):
        access = Access(("other",) if number < 39 else ())
        pfs = life.make_pf(0, 4, network=f"rail{number}", access=access), life.make_pf(1, 0, network=f"none{number}")
        life.put_node(f"n{number}", *pfs)
    life.ask([{}], [{}], rails="same")
    assert _networks(life.work()) == "rail39 rail39"


@pytest.mark.parametrize("seed", range(40))
def test_common_networks_are_found_where_brute_force_finds_some(life: Scene, seed: int) -> None:
    """Equal members, one on each node, of which each rail has at most one VF left."""
    rng = random.Random(seed)
    free = [{network for network in _EIGHT if rng.random() < 0.6} for _ in range(4)]
    for number, networks in enumerate(free):
        life.wire(f"n{number} " + " ".join(one if one in networks else f"~{one}" for one in _EIGHT))
    count = rng.choice((2, 3))
    life.ask(*[[{}] * count] * 3, rails="same")
    exists = any(sum(set(chosen) <= one for one in free) >= 3 for chosen in itertools.combinations(_EIGHT, count))
    assert (len(set(_networks(life.work()).split())) == 1) == exists


def test_the_network_that_admits_most_members_is_tried_first(life: Scene) -> None:
    """Each attempt places members, and a decision has a limited number of attempts."""
    life.wire("n1 a b:2 c:3")
    life.ask([{}], [{}], [{}], rails="same", min=1)
    found = list[Instruction]()
    assert count_calls(GroupSnapshot.choose_node, lambda: found.extend(life.work())) == 3
    assert _networks(found) == "c c c"


def test_a_group_sends_others_away_where_its_networks_are_those_of_one_rack(life: Scene) -> None:
    _forty_racks(life)
    life.place(*(life.make_pod(f"low{number}", [{}]) for number in range(2)))
    life.spec = {"priority": 10}
    life.ask([{}], [{}], rails="same")
    assert victims(life.work()) == ["low0", "low1"]


@pytest.mark.parametrize("seed", range(20))
def test_a_group_sends_others_away_on_the_networks_that_less_important_pods_hold(life: Scene, seed: int) -> None:
    """Of eight rails few are held by pods below the group; those of the others stay held."""
    lower = sorted(random.Random(seed).sample(_EIGHT, 3))
    for name in ("n1", "n2"):
        life.wire(f"{name} " + " ".join(f"~{one}" if one in lower else one for one in _EIGHT))
        life.occupy(name, *(one for one in _EIGHT if one not in lower), priority=10)
    life.spec = {"priority": 10}
    life.ask(*[[{}] * 3] * 2, rails="same")
    assert len(victims(life.work())) == 6


def test_a_member_whose_network_no_node_has_keeps_no_others_from_sending_pods_away(life: Scene) -> None:
    life.wire("n1 a:2")
    life.occupy("n1", "a", "a")
    life.spec = {"priority": 10}
    life.ask(*_requests(("elsewhere", "?", "?")), rails="same", min=2)
    assert len(victims(life.work())) == 2


@pytest.mark.parametrize("holders", [(), ("other", "default")], ids=["on two PFs", "beside what it has"])
def test_of_a_network_a_namespace_has_room_for_its_share(life: Scene, holders: tuple[str, ...]) -> None:
    """On network a it may have two more VFs, of four on each node that are free or another namespace's."""
    access = Access(max_share=50, entry=1)
    for number in range(len(holders) or 1):
        pfs = [life.make_pf(k, 2, network="a", access=access) for k in range(2)]
        life.put_node(f"n{number}", *pfs, life.make_pf(2, 3, network="b"))
    for number, namespace in enumerate(holders):
        fields: dict[str, Any] = {
            "metadata": {"namespace": namespace},
            "spec": {"nodeSelector": {"name": f"n{number}"}},
        }
        assert len(life.place(life.make_pod("", [{"network": "a"}] * 2, **fields))) == 1
    life.ask([{}], [{}], [{}], rails="same", min=1)
    assert _networks(life.work()) == "b b b"


def test_networks_that_no_node_has_together_are_not_tried(life: Scene) -> None:
    """A network for each leaf, and more of them than choices that are tried or judged."""
    for number in range(160):
        life.wire(f"n{number} leaf{number // 4}:2 leaf{number // 4}:2")
    life.ask(*[[{}] * 4] * 4, rails="same")
    assert {int(one.assigned.node[1:]) // 4 for one in binds(life.work())} == {0}
