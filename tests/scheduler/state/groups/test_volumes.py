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

GROUP = '{"name":"train","min":3}'


def _member(store: Store, *claims: str, **fields: Any) -> Pod:
    return store.pod(*claims, annotations={names.GROUP: GROUP}, **fields)


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


def _bound(store: Store, *orders: PreBind) -> None:
    """Let plans be written, and the volumes' controller bind what they name."""
    for order in orders:
        store.machine.finished(order, PreBindResult({}), store.now)
        for match in order.plan.matches:
            claim, volume = match.claim.metadata, match.volume.metadata.name
            reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
            store.volume(volume, where=on(HOST, "n1", "n2", "n3"), claim=reference, phase="Bound")
            store.claim(claim.name, volume, phase="Bound")


def _run(store: Store, later_s: float = 0.0) -> list[Instruction]:
    store.now += later_s
    found = store.run()
    store.machine.check()
    return found


def _nodes(found: list[Instruction]) -> list[str]:
    return sorted(one.assigned.node for one in binds(found))


def _released(store: Store) -> set[str]:
    """Run, expect that no member has a node any more, and return what they are told."""
    found = _run(store)
    assert binds(found) == []
    assert list(store.machine.cache.assigned_pods()) == []
    return messages(found)


@pytest.mark.parametrize("is_late", [False, True])
def test_the_bindings_wait_for_the_last_volume(store: Store, is_late: bool) -> None:
    """That of a later member too, for whose decision they count: were they released, it would be left alone."""
    _, (first, second) = _ready(store)
    if is_late:
        _member(store)
    _bound(store, first)
    assert binds(_run(store)) == []
    _bound(store, second)
    assert len(binds(_run(store))) == 3 + is_late


def test_one_volume_that_cannot_be_bound_releases_all(store: Store) -> None:
    """All members are told which volume it was, and come again after a while."""
    _, (first, second) = _ready(store)
    _bound(store, first)
    store.machine.finished(second, PreBindResult(fault="no such volume"), store.now)
    (message,) = _released(store)
    assert message.startswith("group train: binding volumes of default/")
    assert message.endswith(": no such volume")
    assert _run(store) == []
    assert pre_binds(_run(store, 1.0))


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
    _bound(store, *orders)
    told = _released(store)
    if gone == "node":
        assert told == {f"group train: {pods[2].key}: node {held.node!r} was deleted meanwhile"}
        assert set(_nodes(_run(store, 1.0))) == {"n1", "n2", "n3"} - {held.node}


def _change(store: Store, pod: Pod, group: str | None, request: str | None = None) -> None:
    """Let a pod's owner change what it asks for."""
    texts = {names.GROUP: group, names.REQUEST: request}
    annotations = {key: text for key, text in texts.items() if text is not None}
    store.show(changed(pod, metadata={"annotations": annotations}))
    store.machine.check()


@pytest.mark.parametrize(
    ("group", "request_", "is_bound"),
    [
        pytest.param('{"name":"other","min":1}', None, True, id="another group"),
        pytest.param(None, None, True, id="no group"),
        pytest.param("{", None, False, id="unreadable group"),
        pytest.param(GROUP, "[", False, id="unreadable request"),
        pytest.param(GROUP, '[{"network":"nowhere"}]', False, id="another request"),
    ],
)
def test_a_member_that_asks_for_something_else_meanwhile_is_decided_about_anew(
    group: str | None, request_: str | None, is_bound: bool, store: Store
) -> None:
    """It was counted for the group, and given what it wanted then; without it too few would start."""
    pods, orders = _ready(store)
    _change(store, pods[2], group, request_)
    _bound(store, *orders)
    bound = [bind.pod_info.uid for bind in binds(_run(store))]
    assert bound == [pods[2].metadata.uid] * is_bound
    assert [one.uid for one in store.machine.cache.assigned_pods()] == bound


def test_a_member_that_changes_while_its_binding_is_written_waits_as_what_it_is_then(store: Store) -> None:
    """If that fails it is in its new group; the API server cannot be asked to take back what it may have done."""
    store.nodes("n1", "n2", "n3")
    pods = [_member(store) for _ in range(3)]
    decided = binds(store.run())
    _change(store, pods[0], '{"name":"other","min":2}')
    _change(store, pods[1], GROUP, "[")
    for bind in decided:
        store.machine.finished(bind, Outcome("changed"), store.now)
    states = [store.machine.group_cache.state(pod.metadata.uid) for pod in pods]
    assert states == ["waiting", "refused", "waiting"]
    assert binds(_run(store, 60.0)) == []


def test_a_pod_that_asks_for_something_else_while_its_volumes_are_bound_is_decided_about_anew(store: Store) -> None:
    store.nodes("n1")
    store.claim("a")
    store.volume("pv-a", where=on(HOST, "n1"))
    pod = store.pod("a")
    order = store.pre_filter()
    _change(store, pod, None, '[{"network":"nowhere"}]')
    _bound(store, order)
    assert _released(store)


def test_waiting_binds_need_the_most_that_any_of_their_decisions_needed(store: Store) -> None:
    """A later member asks for less; then too few are left of those that asked for more."""
    pods, orders = _ready(store)
    store.nodes("n4")
    store.pod(annotations={names.GROUP: '{"name":"train","min":2}'})
    assert binds(_run(store)) == []
    for gone in pods[1:]:
        store.machine.pods(Removed(identity(gone)), store.now)
    _bound(store, orders[0])
    assert binds(_run(store)) == []


_MANY = ["ReadWriteMany"]


def _sharing_pod(store: Store, group: str | None = None) -> Pod:
    """Show a pod that uses the claim and fills its node."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]
    return store.pod("data", spec={"containers": containers}, annotations={names.GROUP: group} if group else {})


def _sharing_group(store: Store, count: int = 3, **claim: Any) -> None:
    """Make members that share one claim, each with room on a node of its own only."""
    store.storage_class()
    store.claim("data", modes=_MANY, **claim)
    for _ in range(count):
        _sharing_pod(store, f'{{"name":"train","min":{count}}}')


def _selected(orders: list[PreBind]) -> str:
    """Return the one node that all plans provision the claim for."""
    (node,) = {provision.node for order in orders for provision in order.plan.provisions}
    return node


def _written(store: Store, orders: list[PreBind]) -> str:
    """Let the plans be written; return the node that the claim is to be provisioned for."""
    node = _selected(orders)
    store.claim("data", modes=_MANY, selected=node)
    for order in orders:
        store.machine.finished(order, PreBindResult({}), store.now)
    return node


def _provision(store: Store, orders: list[PreBind], **volume: Any) -> None:
    """Let the plans be written, and the provisioner make the volume."""
    node = _written(store, orders)
    store.volume("pv", claim={"namespace": "default", "name": "data", "uid": "u-data"}, phase="Bound", **volume)
    store.claim("data", "pv", modes=_MANY, selected=node, phase="Bound")


def test_members_on_several_nodes_start_with_a_volume_that_all_can_use(store: Store) -> None:
    """The claim is provisioned for the node of one of them. A pod of no group, whose Binding would not wait for the
    others', waits until the volume shows where it can be used.
    """
    store.nodes("n1", "n2", "n3", "n4")
    _sharing_group(store)
    found = _run(store)
    orders = pre_binds(found)
    assert binds(found) == []
    assert len({order.plan.node for order in orders}) == 3
    _sharing_pod(store)
    assert "4 nodes are available" in "".join(messages(_run(store)))
    _provision(store, orders)
    assert _nodes(_run(store, 2.0)) == ["n1", "n2", "n3", "n4"]


def test_a_volume_that_a_member_cannot_use_releases_all(store: Store) -> None:
    """The provisioner has made it for one zone, which nobody knew; then they are placed there."""
    zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "b"}
    for name, zone in zones.items():
        store.nodes(name, **{ZONE: zone})
    _sharing_group(store)
    orders = pre_binds(store.run())
    assert len({zones[order.plan.node] for order in orders}) == 2, "the members lie in one zone by chance"
    _provision(store, orders, where=on(ZONE, "b"))
    (message,) = _released(store)
    assert "node affinity doesn't match node" in message
    assert _nodes(_run(store, 1.0)) == ["n3", "n4", "n5"]


@pytest.mark.parametrize("name", ["csi.x", "other"])
def test_the_drivers_topology_keys_keep_the_members_together(name: str, store: Store) -> None:
    """A volume can be expected to be usable only in the zone for which it is made; other drivers' keys do not count."""

    def register(keys: list[str]) -> None:
        for node in ("n1", "n2", "n3"):
            drivers = [{"name": name, "topologyKeys": keys}]
            store.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": drivers}})

    for node in ("n1", "n2", "n3"):
        store.nodes(node, **{ZONE: f"of-{node}"})
    register([ZONE])
    _sharing_group(store)
    found = _run(store)
    assert bool(pre_binds(found)) == (name == "other")
    if name == "csi.x":
        (message,) = messages(found)
        assert "node(s) didn't find available persistent volumes to bind" in message
        register([])
        assert len(pre_binds(_run(store, 2.0))) == 3


def test_members_do_not_spread_from_what_is_provisioned_for_another_pod(store: Store) -> None:
    store.nodes("n1", "n2", "n3", "n4")
    _sharing_group(store, selected="n4")
    found = store.run()
    assert pre_binds(found) == []
    assert messages(found)


def test_the_others_move_with_the_node_that_the_claim_is_provisioned_for(store: Store) -> None:
    """It goes while the decision is under way: no claim is provisioned for a node that is not there."""
    store.nodes(*(f"n{number}" for number in range(20)))
    _sharing_group(store, 18)
    store.machine.tick(store.now)
    assert store.machine.step(store.now) == []
    assert store.machine.is_trying, "the decision is made in one step"
    # The first of equal nodes takes the first member.
    store.machine.nodes(Removed(Identity("n0")), store.now)
    orders = pre_binds(_run(store))
    assert len(orders) == 18
    assert _selected(orders) != "n0"


def test_a_provisioner_that_gives_up_releases_all(store: Store) -> None:
    store.nodes("n1", "n2", "n3")
    _sharing_group(store)
    _written(store, pre_binds(store.run()))
    store.claim("data", modes=_MANY)
    (message,) = _released(store)
    assert 'provisioning failed for PVC "data"' in message
    assert len(pre_binds(_run(store, 1.0))) == 3
