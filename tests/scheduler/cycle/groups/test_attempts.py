"""What a group is tried on: nothing is left out by what happens meanwhile, by a bound, or by what was tried before."""

import json
from typing import Any

import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle.groups import group_cycle, rails
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, binds, told, victims

RACK, LEAF, HOSTNAME = "rack", "leaf", "kubernetes.io/hostname"
# Of a PF's 90 Gb/s: by their sums two PFs hold three of them.
HALF = [{"min_tx_rate": 60_000}]


def _node(
    life: Life, name: str, pfs: int = 2, labels: dict[str, str] | None = None, vfs: int = 4, **fields: Any
) -> None:
    made = tuple(life.make_pf(index, vfs, network=f"rail{index}") for index in range(pfs))
    node = life.make_node(name, made, labels={HOSTNAME: name, "name": name} | (labels or {}), **fields)
    life.machine.nodes(Changed(Identity(name), node), life.now)


def _members(life: Life, count: int, request: Any, *, is_apart: bool = False, **group: Any) -> list[Pod]:
    """Let members come, each with its own index as a Job's; ``is_apart`` keeps any two of them off one node."""
    term = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": HOSTNAME}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    text = json.dumps({"name": "g", "min": count, **group})
    spec = {"priority": 10, **(apart if is_apart else {})}
    members = [
        life.member(
            f"m{number}", text, request=request, metadata={"labels": {"app": "g", "index": f"{number}"}}, spec=spec
        )
        for number in range(count)
    ]
    life.see(*members)
    return members


def _unequal(life: Life, count: int, **group: Any) -> None:
    """Let members come of which a node could hold more, by any bound, than it does.

    On a PF there is room for two of the small ones, for one of the large ones, and for none of each.
    """
    text = json.dumps({"name": "g", "min": count, **group})
    spec = {"priority": 10}
    requests = ([{"min_tx_rate": 45_000 if number % 3 == 2 else 50_000}] for number in range(count))
    life.see(*(life.member(f"m{n}", text, request=one, spec=spec) for n, one in enumerate(requests)))


def _steps(life: Life, count: int) -> list[Instruction]:
    return [one for _ in range(count) for one in life.machine.step(life.now) or []]


@pytest.mark.parametrize("steps", range(4))
def test_a_node_may_come_while_leaves_are_tried(life: Life, steps: int) -> None:
    """The rack that holds all of them is tried after the leaves, by what its nodes had when the decision began."""
    for leaf in "ab":
        for number in range(11):
            _node(life, f"{leaf}{number}", labels={LEAF: leaf, RACK: "r"})
    _unequal(life, 30, prefer=[LEAF], within=RACK)
    found = _steps(life, steps)
    _node(life, "new", labels={LEAF: "c", RACK: "r"})
    assert len(binds(found + life.work())) == 30


@pytest.mark.parametrize("gone", ["b0", "b5"])
def test_a_rack_is_tried_though_one_of_its_nodes_goes(life: Life, gone: str) -> None:
    """Also the first one, by which the rack was known."""
    for rack, size in (("a", 10), ("c", 10), ("b", 17)):
        for number in range(size):
            _node(life, f"{rack}{number}", labels={RACK: rack})
    _unequal(life, 30, within=RACK)
    found = _steps(life, 1)
    life.remove_node(gone)
    assert len(binds(found + life.work())) == 30


@pytest.mark.parametrize("spec", [{"taints": [{"key": "k", "effect": "NoSchedule"}]}, {"unschedulable": True}])
@pytest.mark.parametrize("prefer", [[], [LEAF]])
@pytest.mark.parametrize("is_apart", [False, True])
def test_room_outside_the_preferred_domain_wakes_the_group(life: Life, prefer: Any, spec: Any, is_apart: bool) -> None:
    """As many fit in the whole cluster as in the leaf: why the next one does not is told of the cluster."""
    for name in ("a1", "a2") if is_apart else ("a1",):
        _node(life, name, labels={LEAF: "a"})
    _node(life, "b1", labels={LEAF: "b"}, spec=spec)
    if is_apart:
        _members(life, 3, [{}], is_apart=True, prefer=prefer)
    else:
        _unequal(life, 3, prefer=prefer)
    found = life.work()
    assert "topology domain" not in next(iter(told(found).values()))
    assert binds(found + life.work(20.0)) == []
    _node(life, "b1", labels={LEAF: "b"})
    assert len(binds(life.work(20.0))) == 3


def test_of_members_that_keep_apart_a_node_holds_one(life: Life) -> None:
    """Otherwise each of the small racks would be tried, on many networks: more than a decision may try."""
    for rack, size in [*((f"r{number}", 49) for number in range(15)), ("large", 50)]:
        for number in range(size):
            _node(life, f"{rack}-{number}", 8, labels={RACK: rack})
    _members(life, 50, [{}, {}], is_apart=True, within=RACK, rails="same")
    found = binds(life.work())
    assert {one.assigned.node.partition("-")[0] for one in found} == {"large"}


@pytest.mark.parametrize("fits", [True, False])
def test_one_decision_tries_all_domains(life: Life, monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    """Each domain has its own limit of attempts. Nobody is preempted if the last domain has room."""
    monkeypatch.setattr(group_cycle, "_MAX_ATTEMPTS", 1)
    for rack in "abc":
        _node(life, f"{rack}0", labels={RACK: rack})
    for number in range(2 if fits else 1):
        _node(life, f"z{number}", labels={RACK: "z"})
    life.see(life.make_pod("low", [{}], spec={"nodeSelector": {"name": "z0"}}))
    life.bound(*binds(life.work()))
    _unequal(life, 3, within=RACK)
    found = life.work()
    assert victims(found) == []
    assert [one.assigned.node[0] for one in binds(found)] == ["z"] * (3 if fits else 0)
    assert fits or "best domain, and not all combinations were tried" in next(iter(told(found).values()))
    life.work(15.0)
    assert life.machine.queue.next_ready() is None


def test_members_that_name_different_networks(life: Life) -> None:
    """On rails: two of four are needed, and those start whose network has room."""
    pfs = (life.make_pf(0, 2, network="a"), life.make_pf(1, 2, network="b"))
    life.machine.nodes(Changed(Identity("n1"), life.make_node("n1", pfs)), life.now)
    life.see(life.make_pod("on-a", [{"network": "a"}] * 2))
    life.bound(*binds(life.work()))
    text = '{"name":"g","min":2,"rails":"same"}'
    life.see(*(life.member(f"m{n}", text, request=[{"network": "ab"[n // 2]}]) for n in range(4)))
    assert {one.pod_info.pod.metadata.name for one in binds(life.work())} == {"m2", "m3"}


def test_networks_that_others_have_left_for_it_are_tried_first(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks are tried in another order when the victims are gone, and not all are."""
    _node(life, "n1", 8, vfs=2)
    low = [
        life.make_pod(f"low{k}", [{"network": f"rail{k}"}] * 2, spec={"priority": 0 if k in (5, 6) else 20})
        for k in range(8)
    ]
    life.see(*low)
    running = life.bound(*binds(life.work()))
    _members(life, 2, [{}, {}], rails="same")
    assert victims(life.work()) == ["low5", "low6"]
    life.gone(*(one for one in running if one.metadata.name in ("low5", "low6")))
    monkeypatch.setattr(rails, "_MOST_CHOICES", 1)
    assert len(binds(life.work(20.0))) == 2


def test_a_node_that_changes_all_the_time_keeps_no_group_waiting(life: Life) -> None:
    """Each turn a pod comes there and goes; all nodes are needed."""
    life.nodes(*(f"n{number}" for number in range(400)), "busy")
    life.see(*(life.member(f"m{number}", '{"name":"train","min":401}') for number in range(401)))
    found = list[Instruction]()
    for number in range(200):
        found += life.machine.step(life.now) or ()
        if found:
            break
        passing = life.make_pod(f"x{number}", node="busy")
        life.see(passing)
        life.gone(passing)
    assert len(binds(found)) == 401
