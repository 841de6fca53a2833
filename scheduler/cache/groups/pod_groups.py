"""The PodGroups of both APIs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from mooring.kube.events import Change, Changed, Identity, Unreadable
from scheduler.cache.counters import shift
from scheduler.kube.group import Group, GroupKey, Naming, PodGroupEntry, disrupted_as_a_whole, read_pod_group
from scheduler.kube.outcomes import Refused
from scheduler.kube.workload_objects import AnyPodGroup, CoschedulingPodGroup, PodGroup

_NAMINGS: Mapping[type[AnyPodGroup], Naming] = {PodGroup: "PodGroup", CoschedulingPodGroup: "coscheduling"}
_NO_POD_GROUP = PodGroupEntry()


class PodGroups:
    """The PodGroups of both APIs, by the keys of their groups."""

    def __init__(self) -> None:
        self._entries: dict[GroupKey, PodGroupEntry] = {}
        # How many PodGroups have each priority.
        self._priorities = Counter[int]()

    def get(self, key: GroupKey) -> PodGroupEntry:
        return self._entries.get(key, _NO_POD_GROUP)

    def has_below(self, priority: int) -> bool:
        """Return whether any PodGroup has a lower priority than this."""
        return any(group_priority < priority for group_priority in self._priorities)

    @staticmethod
    def key_of(kind: type[AnyPodGroup], identity: Identity) -> GroupKey:
        return GroupKey(_NAMINGS[kind], identity.namespace, identity.name)

    def take(self, kind: type[AnyPodGroup], event: Change[AnyPodGroup]) -> None:
        """Apply a watch event."""
        key = self.key_of(kind, event.identity)
        if (priority := self.get(key).priority) is not None:
            shift(self._priorities, priority, -1)
        match event:
            case Changed(_, item):
                try:
                    group: Group | Refused = read_pod_group(key, item)
                except ValueError as fault:
                    group = Refused(f"its PodGroup is not supported: {fault}")
                self._entries[key] = PodGroupEntry(group, item, disrupted_as_a_whole(item))
            case Unreadable(_, why):
                self._entries[key] = PodGroupEntry(Refused(f"its PodGroup cannot be read: {why}"), is_whole=True)
            case _:
                self._entries.pop(key, None)
        if (priority := self.get(key).priority) is not None:
            shift(self._priorities, priority, 1)

    def absent(self, kind: type[AnyPodGroup], identities: Iterable[Identity]) -> list[Identity]:
        """Return the PodGroups of a kind that are not in a list of all of them."""
        keys = {self.key_of(kind, identity) for identity in identities}
        absent_keys = sorted(key for key in self._entries if key.naming == _NAMINGS[kind] and key not in keys)
        return [Identity(key.name, key.namespace) for key in absent_keys]
