"""Members of a group that share a claim whose volume is provisioned once its first user has a node.

No member alone could start: all are held until the volume is there, and its node affinity is then what counts.
"""

from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.storage_objects import CSINode
from tests.scheduler.group_life import binds
from tests.scheduler.volume_store import ZONE, Store, on

_MANY = ["ReadWriteMany"]


def _pod(store: Store, **fields: Any) -> Pod:
    """Show a pod that uses the claim and fills its node."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return store.pod(spec={"containers": containers, "volumes": volumes}, **fields)


def _member(store: Store, least: int = 3) -> Pod:
    return _pod(store, annotations={names.GROUP: f'{{"name":"train","min":{least}}}'})


def _group(store: Store) -> list[Pod]:
    """Make three members that share one claim, each with room on a node of its own only."""
    store.storage_class()
    store.claim("data", modes=_MANY)
    return [_member(store) for _ in range(3)]


def _zones(store: Store, **zones: str) -> None:
    for name, zone in zones.items():
        store.nodes(name, **{ZONE: zone})


def _driver(store: Store, node: str, *keys: str, name: str = "csi.x") -> None:
    drivers = [{"name": name, "topologyKeys": list(keys)}]
    store.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": drivers}})


def _orders(found: list[Instruction]) -> list[PreBind]:
    return [one for one in found if isinstance(one, PreBind)]


def _nodes(found: list[Instruction]) -> list[str]:
    return sorted(one.assigned.node for one in binds(found))


def _messages(found: list[Instruction]) -> set[str]:
    return {one.message for one in found if isinstance(one, Report)}


def _selected(orders: list[PreBind]) -> str:
    """Return the one node that all plans provision the claim for."""
    (node,) = {provision.node for order in orders for provision in order.plan.provisions}
    return node


def _provision(store: Store, orders: list[PreBind], **volume: Any) -> None:
    """Let the plans be written, and the provisioner make the volume."""
    node = _selected(orders)
    store.claim("data", modes=_MANY, selected=node)
    for order in orders:
        store.machine.finished(order, PreBindResult({}), store.now)
    reference = {"namespace": "default", "name": "data", "uid": "u-data"}
    store.volume("pv", claim=reference, phase="Bound", **volume)
    store.claim("data", "pv", modes=_MANY, selected=node, phase="Bound")


def test_members_on_several_nodes_start_with_a_volume_that_all_can_use(store: Store) -> None:
    """The claim is provisioned for the node of one of them; nobody is bound before it is bound."""
    store.nodes("n1", "n2", "n3")
    _group(store)
    found = store.run()
    orders = _orders(found)
    assert len(orders) == 3
    assert _nodes(found) == []
    assert {order.plan.node for order in orders} == {"n1", "n2", "n3"}
    store.machine.check()
    _provision(store, orders)
    assert _nodes(store.run()) == ["n1", "n2", "n3"]
    store.machine.check()


def test_a_volume_that_a_member_cannot_use_releases_all(store: Store) -> None:
    """The provisioner has made it for one zone, which nobody knew; then they are placed there."""
    _zones(store, n1="a", n2="a", n3="b", n4="b", n5="b")
    _group(store)
    orders = _orders(store.run())
    zones = {node: "a" if node in ("n1", "n2") else "b" for node in ("n1", "n2", "n3", "n4", "n5")}
    assert len({zones[order.plan.node] for order in orders}) == 2, "the members lie in one zone by chance"
    _provision(store, orders, where=on(ZONE, "b"))
    found = store.run()
    assert _nodes(found) == []
    (message,) = _messages(found)
    assert "node affinity doesn't match node" in message
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    store.now += 1.0
    assert _nodes(store.run()) == ["n3", "n4", "n5"]


@pytest.mark.parametrize("name", ["csi.x", "other"])
def test_the_drivers_topology_keys_keep_the_members_together(name: str, store: Store) -> None:
    """A volume can be expected to be usable only in the zone for which it is made; other drivers' keys do not count."""
    _zones(store, n1="a", n2="b", n3="c")
    for node in ("n1", "n2", "n3"):
        _driver(store, node, ZONE, name=name)
    _group(store)
    found = store.run()
    assert bool(_orders(found)) == (name == "other")
    if name == "csi.x":
        (message,) = _messages(found)
        assert "node(s) didn't find available persistent volumes to bind" in message
        # The driver registers again, without them.
        for node in ("n1", "n2", "n3"):
            _driver(store, node)
        store.now += 2.0
        assert len(_orders(store.run())) == 3
    store.machine.check()


def test_a_pod_of_no_group_does_not_share_what_is_being_provisioned(store: Store) -> None:
    """Its Binding would not wait for the others': it waits until the volume shows where it can be used."""
    store.nodes("n1", "n2", "n3", "n4")
    _group(store)
    orders = _orders(store.run())
    _pod(store)
    assert "4 nodes are available" in "".join(_messages(store.run()))
    _provision(store, orders)
    store.now += 2.0
    assert _nodes(store.run()) == ["n1", "n2", "n3", "n4"]


def test_members_do_not_spread_from_what_is_provisioned_for_another_pod(store: Store) -> None:
    store.nodes("n1", "n2", "n3", "n4")
    store.storage_class()
    store.claim("data", modes=_MANY, selected="n4")
    for _ in range(3):
        _member(store)
    found = store.run()
    assert _orders(found) == []
    assert _messages(found)


def test_the_others_move_with_the_node_that_the_claim_is_provisioned_for(store: Store) -> None:
    """It goes while the decision is under way: no claim is provisioned for a node that is not there."""
    store.nodes(*(f"n{number}" for number in range(20)))
    store.storage_class()
    store.claim("data", modes=_MANY)
    for _ in range(18):
        _member(store, 18)
    machine = store.machine
    machine.tick(store.now)
    lost = ""
    found: list[Instruction] = []
    while (instructions := machine.step(store.now)) is not None:
        found += instructions
        if not lost and machine.is_trying:
            # The first of equal nodes takes the first member.
            lost = "n0"
            machine.nodes(Removed(Identity(lost)), store.now)
    assert lost, "the decision is made in one step"
    orders = _orders(found)
    assert len(orders) == 18
    assert _selected(orders) != lost
    machine.check()


def test_a_provisioner_that_gives_up_releases_all(store: Store) -> None:
    store.nodes("n1", "n2", "n3")
    _group(store)
    orders = _orders(store.run())
    store.claim("data", modes=_MANY, selected=_selected(orders))
    for order in orders:
        store.machine.finished(order, PreBindResult({}), store.now)
    store.claim("data", modes=_MANY)
    (message,) = _messages(store.run())
    assert 'provisioning failed for PVC "data"' in message
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    store.now += 1.0
    assert len(_orders(store.run())) == 3
