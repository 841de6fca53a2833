"""No Binding of a group is written before the volumes of all of its members are bound; one failure releases all.

Members may share a claim whose volume is provisioned once its first user has a node. No member alone could start: all
are held until the volume is there, and its node affinity is then what counts.
"""

from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from scheduler.kube.storage_objects import CSINode
from tests.scheduler.group_life import binds, changed, identity
from tests.scheduler.volume_store import HOST, ZONE, Store, messages, on, pre_binds


def _member(store: Store, *claims: str, **fields: Any) -> Pod:
    return store.pod(*claims, annotations={names.GROUP: '{"name":"train","min":3}'}, **fields)


def _ready(store: Store) -> tuple[list[Pod], list[PreBind]]:
    """Make a group of three, two of which use a volume each; return them and the writes that come first."""
    store.nodes("n1", "n2", "n3")
    for name in ("a", "b"):
        store.claim(name)
        store.volume(f"pv-{name}", where=on(HOST, "n1", "n2", "n3"))
    pods = [_member(store, "a"), _member(store, "b"), _member(store)]
    found = store.run()
    assert binds(found) == []
    return pods, pre_binds(found)


def _bound(store: Store, order: PreBind) -> None:
    """Let a plan be written, and the volumes' controller bind what it names."""
    store.machine.finished(order, PreBindResult({}), store.now)
    for match in order.plan.matches:
        claim, volume = match.claim.metadata, match.volume.metadata.name
        reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
        store.volume(volume, where=on(HOST, "n1", "n2", "n3"), claim=reference, phase="Bound")
        store.claim(claim.name, volume, phase="Bound")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_bindings_wait_for_the_last_volume(store: Store, is_late: bool) -> None:
    """That of a later member too, for whose decision they count: were they released, it would be left alone."""
    _, (first, second) = _ready(store)
    if is_late:
        _member(store)
    _bound(store, first)
    assert binds(store.run()) == []
    store.machine.check()
    _bound(store, second)
    assert len(binds(store.run())) == 3 + is_late


def test_one_volume_that_cannot_be_bound_releases_all(store: Store) -> None:
    """Nothing stays assumed; all members are told which volume it was, and come again after a while."""
    _, (first, second) = _ready(store)
    _bound(store, first)
    store.machine.finished(second, PreBindResult(fault="no such volume"), store.now)
    found = store.machine.tick(store.now)
    (message,) = messages(found)
    assert message.startswith("group train: binding volumes of default/")
    assert message.endswith(": no such volume")
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    assert store.run() == []
    store.now += 1.0
    assert pre_binds(store.run())


@pytest.mark.parametrize("gone", ["member", "node"])
def test_a_member_or_a_node_that_goes_meanwhile_releases_all(store: Store, gone: str) -> None:
    """Too few would be left, as a member without a volume counts too: the API server would bind it to a lost node."""
    pods, orders = _ready(store)
    held = store.machine.cache.assigned(pods[2].metadata.uid)
    assert held is not None
    if gone == "member":
        store.machine.pods(Removed(identity(pods[2])), store.now)
    else:
        store.machine.nodes(Removed(Identity(held.node)), store.now)
    for order in orders:
        _bound(store, order)
    found = store.run()
    assert binds(found) == []
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    if gone == "node":
        assert messages(found) == {f"group train: {pods[2].key}: node {held.node!r} was deleted meanwhile"}
        store.now += 1.0
        assert {bind.assigned.node for bind in binds(store.run())} == {"n1", "n2", "n3"} - {held.node}


def _asking(pod: Pod, annotations: dict[str, str]) -> Pod:
    """Return a pod as its owner has changed it."""
    return changed(pod, metadata={"annotations": annotations})


@pytest.mark.parametrize(
    "annotations",
    [
        {names.GROUP: '{"name":"other","min":1}'},
        {},
        {names.GROUP: "{"},
        {names.GROUP: '{"name":"train","min":3}', names.REQUEST: "["},
        {names.GROUP: '{"name":"train","min":3}', names.REQUEST: '[{"network":"nowhere"}]'},
    ],
    ids=["another group", "no group", "unreadable group", "unreadable request", "another request"],
)
def test_a_member_that_asks_for_something_else_meanwhile_is_decided_about_anew(
    annotations: dict[str, str], store: Store
) -> None:
    """It was counted for the group, and given what it wanted then; without it too few would start."""
    pods, orders = _ready(store)
    store.show(_asking(pods[2], annotations))
    store.machine.check()
    for order in orders:
        _bound(store, order)
    bound = [bind.pod_info.uid for bind in binds(store.run())]
    uids = [pod.metadata.uid for pod in pods]
    assert bound == (uids[2:] if names.REQUEST not in annotations and annotations.get(names.GROUP) != "{" else [])
    assert {one.uid for one in store.machine.cache.assigned_pods()} == set(bound)
    store.machine.check()


def test_a_member_that_changes_while_its_binding_is_written_waits_as_what_it_is_then(store: Store) -> None:
    """If that fails it is in its new group; the API server cannot be asked to take back what it may have done."""
    store.nodes("n1", "n2", "n3")
    pods = [_member(store) for _ in range(3)]
    decided = binds(store.run())
    store.show(_asking(pods[0], {names.GROUP: '{"name":"other","min":2}'}))
    store.show(_asking(pods[1], {names.GROUP: '{"name":"train","min":3}', names.REQUEST: "["}))
    for bind in decided:
        store.machine.finished(bind, Outcome("changed"), store.now)
    store.machine.check()
    standings = [store.machine.group_cache.state(pod.metadata.uid) for pod in pods]
    assert standings == ["waiting", "refused", "waiting"]
    store.now += 60.0
    assert binds(store.run()) == []
    store.machine.check()


def test_a_pod_that_asks_for_something_else_while_its_volumes_are_bound_is_decided_about_anew(store: Store) -> None:
    store.nodes("n1")
    store.claim("a")
    store.volume("pv-a", where=on(HOST, "n1"))
    pod = store.pod("a")
    order = store.pre_filter()
    store.show(_asking(pod, {names.REQUEST: '[{"network":"nowhere"}]'}))
    _bound(store, order)
    found = store.run()
    assert binds(found) == []
    assert messages(found)
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()


def test_waiting_binds_need_the_most_that_any_of_their_decisions_needed(store: Store) -> None:
    """A later member asks for less; then too few are left of those that asked for more."""
    pods, orders = _ready(store)
    store.nodes("n4")
    store.pod(annotations={names.GROUP: '{"name":"train","min":2}'})
    assert binds(store.run()) == []
    for gone in pods[1:]:
        store.machine.pods(Removed(identity(gone)), store.now)
    _bound(store, orders[0])
    assert binds(store.run()) == []
    store.machine.check()


_MANY = ["ReadWriteMany"]


def _sharing_pod(store: Store, **fields: Any) -> Pod:
    """Show a pod that uses the claim and fills its node."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return store.pod(spec={"containers": containers, "volumes": volumes}, **fields)


def _sharing_member(store: Store, least: int = 3) -> Pod:
    return _sharing_pod(store, annotations={names.GROUP: f'{{"name":"train","min":{least}}}'})


def _group(store: Store) -> list[Pod]:
    """Make three members that share one claim, each with room on a node of its own only."""
    store.storage_class()
    store.claim("data", modes=_MANY)
    return [_sharing_member(store) for _ in range(3)]


def _zones(store: Store, **zones: str) -> None:
    for name, zone in zones.items():
        store.nodes(name, **{ZONE: zone})


def _driver(store: Store, node: str, *keys: str, name: str = "csi.x") -> None:
    drivers = [{"name": name, "topologyKeys": list(keys)}]
    store.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": drivers}})


def _nodes(found: list[Instruction]) -> list[str]:
    return sorted(one.assigned.node for one in binds(found))


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
    orders = pre_binds(found)
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
    orders = pre_binds(store.run())
    zones = {node: "a" if node in ("n1", "n2") else "b" for node in ("n1", "n2", "n3", "n4", "n5")}
    assert len({zones[order.plan.node] for order in orders}) == 2, "the members lie in one zone by chance"
    _provision(store, orders, where=on(ZONE, "b"))
    found = store.run()
    assert _nodes(found) == []
    (message,) = messages(found)
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
    assert bool(pre_binds(found)) == (name == "other")
    if name == "csi.x":
        (message,) = messages(found)
        assert "node(s) didn't find available persistent volumes to bind" in message
        # The driver registers again, without them.
        for node in ("n1", "n2", "n3"):
            _driver(store, node)
        store.now += 2.0
        assert len(pre_binds(store.run())) == 3
    store.machine.check()


def test_a_pod_of_no_group_does_not_share_what_is_being_provisioned(store: Store) -> None:
    """Its Binding would not wait for the others': it waits until the volume shows where it can be used."""
    store.nodes("n1", "n2", "n3", "n4")
    _group(store)
    orders = pre_binds(store.run())
    _sharing_pod(store)
    assert "4 nodes are available" in "".join(messages(store.run()))
    _provision(store, orders)
    store.now += 2.0
    assert _nodes(store.run()) == ["n1", "n2", "n3", "n4"]


def test_members_do_not_spread_from_what_is_provisioned_for_another_pod(store: Store) -> None:
    store.nodes("n1", "n2", "n3", "n4")
    store.storage_class()
    store.claim("data", modes=_MANY, selected="n4")
    for _ in range(3):
        _sharing_member(store)
    found = store.run()
    assert pre_binds(found) == []
    assert messages(found)


def test_the_others_move_with_the_node_that_the_claim_is_provisioned_for(store: Store) -> None:
    """It goes while the decision is under way: no claim is provisioned for a node that is not there."""
    store.nodes(*(f"n{number}" for number in range(20)))
    store.storage_class()
    store.claim("data", modes=_MANY)
    for _ in range(18):
        _sharing_member(store, 18)
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
    orders = pre_binds(found)
    assert len(orders) == 18
    assert _selected(orders) != lost
    machine.check()


def test_a_provisioner_that_gives_up_releases_all(store: Store) -> None:
    store.nodes("n1", "n2", "n3")
    _group(store)
    orders = pre_binds(store.run())
    store.claim("data", modes=_MANY, selected=_selected(orders))
    for order in orders:
        store.machine.finished(order, PreBindResult({}), store.now)
    store.claim("data", modes=_MANY)
    (message,) = messages(store.run())
    assert 'provisioning failed for PVC "data"' in message
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    store.now += 1.0
    assert len(pre_binds(store.run())) == 3
