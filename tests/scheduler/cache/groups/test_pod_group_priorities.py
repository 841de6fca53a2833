"""The lowest priority of all PodGroups, after each of their events."""

import msgspec

from mooring.kube.events import Changed, Identity, Removed, Unreadable
from scheduler.cache.groups.group_sources import AnyPodGroup, PodGroup, PodGroups


def _changed(name: str, priority: int | None) -> Changed[AnyPodGroup]:
    policy = {"gang": {"minCount": 1}}
    spec = {"schedulingPolicy": policy} | ({} if priority is None else {"priority": priority})
    item = msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, PodGroup)
    return Changed(Identity(name, "default"), item)


def test_a_pod_group_has_its_current_priority_until_it_goes() -> None:
    """Two with one priority count as two."""
    pod_groups = PodGroups()
    pod_groups.take(PodGroup, _changed("none", None))
    assert not pod_groups.has_below(10**9)
    pod_groups.take(PodGroup, _changed("first", 3))
    pod_groups.take(PodGroup, _changed("second", 3))
    pod_groups.take(PodGroup, _changed("first", 7))
    assert (pod_groups.has_below(3), pod_groups.has_below(4)) == (False, True)
    pod_groups.take(PodGroup, Removed(Identity("second", "default")))
    assert (pod_groups.has_below(7), pod_groups.has_below(8)) == (False, True)
    pod_groups.take(PodGroup, Unreadable(Identity("first", "default"), "it is too large"))
    assert not pod_groups.has_below(10**9)
