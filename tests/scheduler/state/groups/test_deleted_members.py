"""Members that are deleted while their Bindings are written: a Job's pods stay then, by their finalizer."""

import pytest

from scheduler.kube.outcomes import Kind, Outcome
from tests.scheduler.group_life import Life, binds, changed

GOING = {"deletionTimestamp": "2026-01-02T00:00:00Z"}


def test_a_member_that_is_deleted_while_its_binding_is_written_does_not_count(life: Life) -> None:
    """Of three that are needed two are left, and one of these waits: it is not placed."""
    life.nodes("n1", "n2", "n3", "n4")
    life.see(*(life.member() for _ in range(3)))
    first, second, third = binds(life.work())
    life.bound(first)
    life.see(changed(third.pod_info.pod, metadata=GOING))
    life.machine.finished(second, Outcome("changed", ""), life.now)
    assert binds(life.work(20.0)) == []
    life.see(life.member())
    assert len(binds(life.work(1.0))) == 2


@pytest.mark.parametrize("kind", ["forbidden", "refused", "changed"])
def test_a_deleted_member_whose_binding_fails_does_not_wait(life: Life, kind: Kind) -> None:
    """An API server may refuse a Binding before it sees that the pod is being deleted."""
    life.nodes("n1", "n2", "n3", "n4")
    life.see(*(life.member() for _ in range(3)))
    decided = binds(life.work())
    life.see(changed(decided[2].pod_info.pod, metadata=GOING))
    for one in decided:
        life.machine.finished(one, Outcome(kind, "no"), life.now)
    assert binds(life.work(20.0)) == []
