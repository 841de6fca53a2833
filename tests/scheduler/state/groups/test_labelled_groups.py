"""Groups whose name is a label's value: one template makes several of them."""

from scheduler.cycle.instructions import Report
from tests.scheduler.group_life import Life, binds, changed

KEY = "leaderworkerset.sigs.k8s.io/group-key"
GROUP = f'{{"name_from":"{KEY}","min":2}}'


def replica(life: Life, number: int) -> list[str]:
    """Let a leader and its worker come; return their names."""
    names = [f"serve-{number}", f"serve-{number}-1"]
    life.see(*(life.member(name, GROUP, metadata={"labels": {KEY: f"key-{number}"}}) for name in names))
    return names


def test_each_replica_starts_on_its_own(life: Life) -> None:
    """Where there is room for one, one starts whole, and the pods of the other wait."""
    life.nodes("n1", "n2", "n3")
    replicas = [replica(life, number) for number in range(2)]
    found = binds(life.work())
    life.bound(*found)
    assert sorted(one.pod_info.pod.metadata.name for one in found) in replicas
    life.nodes("n4")
    second = binds(life.work(15.0))
    assert sorted(one.pod_info.pod.metadata.name for one in second) in replicas
    assert len(second) == 2


def test_a_pod_whose_label_comes_later_joins_then(life: Life) -> None:
    """Until then it is refused, and its event names annotation, field and label."""
    life.nodes("n1", "n2")
    first, late = (life.member(name, GROUP, metadata={"labels": {KEY: "a"}}) for name in ("first", "late"))
    found = life.see(first, changed(late, metadata={"labels": {}})) + life.work()
    (message,) = {one.message for one in found if isinstance(one, Report) and one.pod.metadata.name == "late"}
    assert message == f"annotation 'mooring.dev/group'.name_from: label {KEY!r} of the pod is missing or empty"
    life.see(late)
    assert len(binds(life.work(5.0))) == 2
