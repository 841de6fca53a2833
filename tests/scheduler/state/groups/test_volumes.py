"""No Binding of a group is written before the volumes of all of its members are bound; one failure releases all."""

from typing import Any

from mooring import names
from mooring.kube.events import Identity, Removed
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult
from scheduler.kube.objects import Pod
from scheduler.state.machine import Report
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
    assert _binds(found) == []
    return pods, [one for one in found if isinstance(one, PreBind)]


def _binds(instructions: list[Instruction]) -> list[Bind]:
    return [one for one in instructions if isinstance(one, Bind)]


def _bound(store: Store, order: PreBind) -> None:
    """Let a plan be written, and the volumes' controller bind what it names."""
    store.machine.finished(order, PreBindResult({}), store.now)
    for match in order.plan.matches:
        claim, volume = match.claim.metadata, match.volume.metadata.name
        reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
        store.volume(volume, where=on(HOST, "n1", "n2", "n3"), claim=reference, phase="Bound")
        store.claim(claim.name, volume, phase="Bound")


def test_the_bindings_wait_for_the_last_volume(store: Store) -> None:
    """The member without a volume waits too; then all leave at once."""
    _, (first, second) = _ready(store)
    _bound(store, first)
    assert _binds(store.run()) == []
    store.machine.check()
    _bound(store, second)
    assert len(_binds(store.run())) == 3


def test_one_volume_that_cannot_be_bound_releases_all(store: Store) -> None:
    """Nothing stays assumed; all members are told which volume it was, and come again after a while."""
    _, (first, second) = _ready(store)
    _bound(store, first)
    found = store.machine.finished(second, PreBindResult(fault="no such volume"), store.now)
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
    gone = pods[2].metadata
    store.machine.pods(Removed(Identity(gone.name, gone.namespace, gone.uid)), store.now)
    for order in orders:
        _bound(store, order)
    assert _binds(store.run()) == []
    assert list(store.machine.cache.assigned_pods()) == []
    store.machine.check()


def test_a_later_member_is_not_bound_before_those_that_wait_for_volumes(store: Store) -> None:
    """They count for its decision: were they released, it would be left alone."""
    _, orders = _ready(store)
    _member(store)
    assert _binds(store.run()) == []
    store.machine.check()
    for order in orders:
        _bound(store, order)
    assert len(_binds(store.run())) == 4
