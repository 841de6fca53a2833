"""Networks for some namespaces, and the share of each: what the scheduler decides, by whichever way a pod comes."""

import json
from collections import Counter
from fnmatch import fnmatchcase
from random import Random
from typing import Any

import pytest

from mooring import names
from mooring.annotations.pf_terms import Access
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from scheduler.constraints.kinds import Kinds
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine
from tests.scheduler.extender.scene import NOW, Scene
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, orders, told

OF_A = Access(("team-a", "ml-*"))
HALF = Access(max_share=50, entry=0)
REFUSED = "network 'rail0' is for namespaces team-a, ml-*"


_PATH = ("0000:00:01.0",)


def node(life: Life, name: str, *access: Access, vfs: int = 4, **fields: Any) -> None:
    """Put a node with a PF of each access; the PFs have networks of their own."""
    pfs = tuple(
        life.make_pf(index, vfs, access=each, network=f"rail{index}", pcie=_PATH) for index, each in enumerate(access)
    )
    life.show_node(name, *pfs, **fields)


def pod_of(life: Life, namespace: str, name: str = "", request: object = ({},), **fields: Any) -> Pod:
    return life.make_pod(name, request, metadata={"namespace": namespace}, **fields)


def placed(life: Life, *pods: Pod) -> tuple[list[Pod], dict[str, str]]:
    """Decide about pods; return those that are bound, and what the others are told."""
    found = life.see(*pods) + life.work(60)
    return life.bound(*binds(found)), told(found)


def networks(pod: Pod) -> list[str]:
    return [vf["network"] for vf in json.loads(pod.annotations[names.ASSIGNMENT])["vfs"]]


def test_a_pod_gets_vfs_only_of_networks_for_its_namespace(life: Life) -> None:
    """Others are refused in words; a pod that names no network gets one that it may use."""
    node(life, "n1", OF_A)
    others = [pod_of(life, namespace, name) for namespace, name in (("team-b", "b"), ("team-a-2", "c"), ("", "d"))]
    _, waiting = placed(life, *others)
    assert {name: REFUSED in text for name, text in waiting.items()} == {"b": True, "c": True, "d": True}
    bound, waiting = placed(life, pod_of(life, "team-a"), pod_of(life, "ml-train"))
    assert (len(bound), waiting) == (2, {})
    life.gone(*others)
    node(life, "n2", OF_A, Access())
    bound, _ = placed(life, *(pod_of(life, "team-b", request=({}, {})) for _ in range(2)))
    assert [networks(pod) for pod in bound] == [["rail1", "rail1"]] * 2
    _, waiting = placed(life, pod_of(life, "team-b", "b", [{"network": "rail0"}]))
    assert REFUSED in waiting["b"]


def test_an_equal_pod_of_another_namespace_is_decided_about_anew(life: Life) -> None:
    """In either order, before and after the first restriction, and after the last."""
    for access in (Access(), OF_A, Access(), OF_A):
        node(life, "n1", access, vfs=64)
        for namespace in ("team-a", "team-b", "team-a", "team-b"):
            bound, waiting = placed(life, pod_of(life, namespace, "p"))
            outcome = (1, []) if namespace == "team-a" or access == Access() else (0, [True])
            assert (len(bound), [REFUSED in text for text in waiting.values()]) == outcome
            for uid in list(life.machine.pending_pods.pending):
                life.gone(life.machine.pending_pods.pending[uid].pod)


def test_no_namespace_holds_more_than_its_share_of_a_node(life: Life) -> None:
    """Over all PFs of the entry; what one may not have another may, and what it gives back it may have again."""
    node(life, "n1", HALF, HALF)
    bound, waiting = placed(life, *(pod_of(life, "team-a", f"a{number}", ({}, {})) for number in range(3)))
    assert (len(bound), list(waiting)) == (2, ["a2"])
    reason = "namespace 'team-a' has 4 VFs of networks 'rail0', 'rail1' and requests 2 more; max_share 50 allows it 4"
    assert reason in waiting["a2"]
    others, _ = placed(life, pod_of(life, "team-b", request=({}, {}, {}, {})))
    assert len(others) == 1
    life.gone(bound[0])
    again, _ = placed(life)
    assert [pod.metadata.name for pod in again] == ["a2"]


def test_a_new_leader_counts_the_share_again(life: Life) -> None:
    node(life, "n1", HALF)
    bound, _ = placed(life, pod_of(life, "team-a", request=({}, {})))
    other = life.successor()
    other.see(*bound)
    node(other, "n1", HALF)
    _, waiting = placed(other, pod_of(life, "team-a", "late"))
    assert "has 2 VFs of network 'rail0' and requests 1 more; max_share 50 allows it 2" in waiting["late"]
    assert len(placed(other, pod_of(life, "team-b"))[0]) == 1


def test_interfaces_go_to_other_entries_where_the_share_is_used_up(life: Life) -> None:
    """A packed pod would otherwise take all of them from one PF."""
    node(life, "n1", HALF, Access())
    packed = {names.PLACEMENT: '{"pfs":"pack"}'}
    bound, _ = placed(life, pod_of(life, "team-a", request=({},) * 6, annotations=packed))
    assert sorted(networks(bound[0])) == ["rail0"] * 2 + ["rail1"] * 4


def test_only_pods_of_the_same_namespace_are_evicted_for_a_share(life: Life) -> None:
    """What another tenant loses gives this one nothing."""
    node(life, "n1", HALF, vfs=8)
    low, _ = placed(life, pod_of(life, "team-b", "other", ({},)), pod_of(life, "team-a", "own", ({},) * 4))
    assert len(low) == 2
    high = pod_of(life, "team-a", "high", ({}, {}), spec={"priority": 9})
    found = life.see(high) + life.work(60)
    assert [victim.pod for one in orders(found) for victim in one.victims] == ["team-a/own"]
    life.gone(high)
    none = pod_of(life, "team-c", "none", ({},) * 5, spec={"priority": 9})
    found = life.see(none) + life.work(60)
    assert orders(found) == []
    assert "Preemption is not helpful" in told(found)["none"]


def test_nobody_is_evicted_on_a_network_of_others(life: Life) -> None:
    node(life, "n1", OF_A, vfs=1)
    assert len(placed(life, pod_of(life, "team-a"))[0]) == 1
    found = life.see(pod_of(life, "team-b", "b", spec={"priority": 9})) + life.work(60)
    assert orders(found) == []
    assert REFUSED in told(found)["b"]


@pytest.mark.parametrize("rails", ["", ',"rails":"same"', ',"rails":"index"'])
def test_a_group_is_placed_within_its_namespaces_networks_and_shares(rails: str, life: Life) -> None:
    for name in ("n1", "n2"):
        node(life, name, Access(("team-a",)), Access(max_share=50, entry=1))
    group = {names.GROUP: f'{{"name":"train","min":4{rails}}}'}
    members = [pod_of(life, "team-b", f"b{number}", annotations=group) for number in range(4)]
    others = [pod_of(life, "team-c", f"c{number}", annotations=group) for number in range(3)]
    bound, waiting = placed(life, *members, *others)
    if rails == ',"rails":"index"':
        assert not bound
        assert all("network 'rail0' is for namespaces team-a" in waiting[pod.metadata.name] for pod in members)
        return
    assert sorted(pod.metadata.name for pod in bound) == ["b0", "b1", "b2", "b3"]
    assert {tuple(networks(pod)) for pod in bound} == {("rail1",)}
    _, waiting = placed(life, pod_of(life, "team-b", "more"))
    assert "namespace 'team-b' has 2 VFs of network 'rail1' and requests 1 more" in waiting["more"]


def test_a_group_larger_than_its_share_is_not_begun(life: Life) -> None:
    """One member could be placed, and the group's networks are counted by what the share leaves."""
    node(life, "n1", HALF)
    group = {names.GROUP: '{"name":"train","min":3,"rails":"same"}'}
    bound, waiting = placed(life, *(pod_of(life, "team-a", f"a{number}", annotations=group) for number in range(3)))
    assert not bound
    assert len(waiting) == 3


def test_a_pod_with_gpus_gets_vfs_of_its_own_networks(life: Life) -> None:
    """Both are placed together; the share of a pod with GPUs counts as any other's."""
    life = life.successor(Machine("mooring", kinds=Kinds([gpu_kind()])))
    gpus = [Gpu(f"0000:{number}b:00.0", f"GPU-{number}", "nvidia", pcie=_PATH) for number in range(1, 5)]
    inventory = {KEY: dump_gpu_inventory(GpuInventory(tuple(gpus)))}
    node(life, "n1", OF_A, HALF, annotations=inventory, allocatable={"mooring.dev/gpu": "4"})
    resources = {name: {"mooring.dev/gpu": "1"} for name in ("limits", "requests")}
    limit: dict[str, Any] = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    bound, waiting = placed(life, *(pod_of(life, "team-b", f"b{number}", **limit) for number in range(3)))
    assert [networks(pod) for pod in bound] == [["rail1"]] * 2, waiting
    assert "namespace 'team-b' has 2 VFs of network 'rail1' and requests 1 more" in waiting["b2"]
    beside = {f"{names.REQUEST_OF}gpu": '{"vfs":"switch"}'}
    bound, _ = placed(life, pod_of(life, "team-a", request=[{"network": "rail0"}], annotations=beside, **limit))
    assert [networks(pod) for pod in bound] == [["rail0"]]
    life.machine.check()


def test_kube_schedulers_pods_are_held_to_the_same_terms(
    machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> None:
    """When nodes are filtered, when one is bound, and when victims are proposed."""
    scene = Scene(machine, make_pf, make_node, make_pod)
    scene.add_node("n1", vfs=4, access=OF_A)
    scene.add_node("n2", vfs=2, access=HALF)

    def pod_info(namespace: str) -> PodInfo:
        return scene.pod_info(metadata={"namespace": namespace})

    first, second = pod_info("team-b"), pod_info("team-b")
    assert scene.verdicts(first, "n1", "n2") == {"n1": Verdict(REFUSED, for_good=True), "n2": Verdict()}
    assert scene.extender_pods.reserve(first, "n1", NOW) == Refused(f"node 'n1': {REFUSED}")
    assert scene.extender_pods.make_room(first, "n1", Victims((), 0), NOW) is None
    scene.given(first, "n2")
    share = "namespace 'team-b' has 1 VFs of network 'rail0' and requests 1 more; max_share 50 allows it 1"
    assert scene.verdicts(second, "n2") == {"n2": Verdict(share)}
    assert scene.extender_pods.reserve(second, "n2", NOW) == Refused(f"node 'n2': {share}")
    assert scene.given(pod_info("ml-train"), "n1").assigned.node == "n1"


def test_an_assignment_that_a_pod_brings_with_it_gives_it_nothing(life: Life) -> None:
    """The scheduler writes its own, and counts none before the pod has a node."""
    node(life, "n1", OF_A)
    honest, _ = placed(life, pod_of(life, "team-a"))
    forged = {names.ASSIGNMENT: honest[0].annotations[names.ASSIGNMENT], names.RATES: "{}"}
    _, waiting = placed(life, pod_of(life, "team-b", "b", annotations=forged))
    assert REFUSED in waiting["b"]


_RAILS = ("", ',"rails":"same"', ',"rails":"index"')
_TERMS = (Access(), Access(("a",)), Access(("a", "b*")), Access(max_share=50, entry=1), Access(("b*", "c"), 30, 2))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_and_goes_no_namespace_has_more_than_the_offer_gives_it(seed: int, life: Life) -> None:
    """Pods, groups and urgent pods of four namespaces; after every step each assignment is held against the offer."""
    random, alive, served = Random(seed), dict[str, Pod](), set[str]()
    for number in range(3):
        node(life, f"n{number}", *random.choices(_TERMS, k=3), vfs=random.randint(1, 4))
    for step in range(25):
        namespace = random.choice(("a", "b", "b2", "c"))
        request = [random.choice(({}, {}, {"network": "rail1"})) for _ in range(random.randint(1, 3))]
        group = {names.GROUP: f'{{"name":"g{step}","min":2{random.choice(_RAILS)}}}'} if random.random() < 0.3 else {}
        fields: dict[str, Any] = {"annotations": group, "spec": {"priority": random.choice((0, 0, 9))}}
        pods = [pod_of(life, namespace, f"p{step}-{k}", request, **fields) for k in range(2 if group else 1)]
        found = life.see(*pods) + life.work(60)
        bound = life.bound(*binds(found))
        alive |= {pod.key: pod for pod in bound}
        for key in [victim.pod for one in orders(found) for victim in one.victims]:
            life.gone(alive.pop(key))
        if alive and random.random() < 0.4:
            life.gone(alive.pop(random.choice(sorted(alive))))
        served |= {pod.metadata.namespace or "" for pod in bound}
        for number in range(3):
            _hold_to_offer(life, f"n{number}")
    assert len(served) > 2


def _hold_to_offer(life: Life, name: str) -> None:
    """Count by the offer's definition alone."""
    node_info = life.machine.cache.node(name)
    assert node_info is not None
    assert node_info.inventory is not None
    pfs, counts = node_info.inventory.pfs, Counter[tuple[int, str]]()
    for pod in life.machine.cache.assigned_pods_on(name):
        namespace = pod.pod.partition("/")[0]
        for vf in pod.assignment.vfs if pod.assignment is not None else ():
            (pf,) = (pf for pf in pfs if pf.name == vf.pf)
            allowed = pf.access.namespaces or ("*",)
            assert any(fnmatchcase(namespace, pattern) for pattern in allowed), (pod.pod, pf.access)
            counts[pf.access.entry, namespace] += 1
    for (entry, namespace), count in counts.items():
        of_entry = [pf for pf in pfs if pf.access.entry == entry]
        share = of_entry[0].access.max_share
        assert share is None or count <= max(1, sum(len(pf.vfs) for pf in of_entry) * share // 100), namespace
