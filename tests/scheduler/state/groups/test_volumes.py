"""No Binding of a group is written before the volumes of all of its members are bound; one failure releases all."""

from typing import Any

import pytest

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.instructions import PreBind, PreBindResult, Report
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Outcome
from tests.scheduler.group_life import binds, changed, identity
from tests.scheduler.volume_store import HOST, Store, on


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
    return pods, [one for one in found if isinstance(one, PreBind)]


def _bound(store: Store, order: PreBind) -> None:
    """Let a plan be written, and the volumes' controller bind what it names."""
    store.machine.finished(order, PreBindResult({}), store.now)
    for match in order.plan.matches:
        claim, volume = match.claim.metadata, match.volume.metadata.name
        reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
        store.volume(volume, where=on(HOST, "n1", "n2", "n3"), claim=reference, phase="Bound")
        store.claim(claim.name, volume, phase="Bound")


def test_the_bindings_wait_for_the_last_volume(store: Store) -> None:
    _, (first, second) = _ready(store)
    _bound(store, first)
    assert binds(store.run()) == []
    store.machine.check()
    _bound(store, second)
    assert len(binds(store.run())) == 3


def test_one_volume_that_cannot_be_bound_releases_all(store: Store) -> None:
    """Nothing stays assumed; all members are told which volume it was, and come again after a while."""
    _, (first, second) = _ready(store)
    _bound(store, first)
    store.machine.finished(second, PreBindResult(fault="no such volume"), store.now)
    found = store.machine.tick(store.now)
    messages = {one.message for one in found if isinstance(one, Report)}
    (message,) = messages
    assert message.startswith("group train: binding volumes of default/")
    assert message.endswith(": no such volume")
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()
    assert store.run() == []
    store.now += 1.0
    assert [one for one in store.run() if isinstance(one, PreBind)]


def test_a_member_that_goes_meanwhile_releases_the_others(store: Store) -> None:
    """Too few would be left; the member without a volume counts as well."""
    pods, orders = _ready(store)
    store.machine.pods(Removed(identity(pods[2])), store.now)
    for order in orders:
        _bound(store, order)
    assert binds(store.run()) == []
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()


def test_a_node_that_goes_meanwhile_releases_all(store: Store) -> None:
    """It is that of a member without a volume: the API server would bind it there, and the group would lose it."""
    pods, orders = _ready(store)
    held = store.machine.cache.assigned(pods[2].metadata.uid)
    assert held is not None
    store.machine.nodes(Removed(Identity(held.node)), store.now)
    for order in orders:
        _bound(store, order)
    found = store.run()
    assert binds(found) == []
    messages = {one.message for one in found if isinstance(one, Report)}
    assert messages == {f"group train: {pods[2].key}: node {held.node!r} was deleted meanwhile"}
    store.machine.check()
    store.now += 1.0
    assert {bind.assigned.node for bind in binds(store.run())} == {"n1", "n2", "n3"} - {held.node}


def test_a_later_member_is_not_bound_before_those_that_wait_for_volumes(store: Store) -> None:
    """They count for its decision: were they released, it would be left alone."""
    _, orders = _ready(store)
    _member(store)
    assert binds(store.run()) == []
    store.machine.check()
    for order in orders:
        _bound(store, order)
    assert len(binds(store.run())) == 4


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
    assert [one.message for one in found if isinstance(one, Report)]
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
