"""The groups of pods as the scheduler reads them (`scheduler.cache.groups`): members, decisions, domains. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from cli.plugin.reports import explain
from cli.plugin.reports.explain import DecisionReport
from cli.plugin.reports.level_use import LevelUse, level_uses
from cli.plugin.reports.objects import Event
from cli.plugin.reports.objects import Node as ShownNode
from mooring.annotations.group import GroupRequest
from mooring.kube.events import Changed, Identity
from scheduler.cache.groups.group_cache import GroupCache, Member, Members, MemberState
from scheduler.cache.groups.pod_groups import PodGroups
from scheduler.kube.group import Group, GroupKey, membership_if_readable, membership_of_refused, node_times, read_group
from scheduler.kube.member_order import by_index
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.workload_objects import POD_GROUP_PATHS, AnyPodGroup, Job
from scheduler.pending.groups.promises import promise_in

UNLISTED = "no right to list its PodGroup"
# Scheduled: at least min are bound. Partial: some are, of a group cut short. Incomplete: too few pods exist, or too few
# of a role. Refused: its sources contradict each other, are not supported or do not exist, or pods of another scheduler
# wait too. Finished: some have succeeded, and none runs or waits.
State = Literal["Scheduled", "Partial", "Waiting", "Incomplete", "Refused", "Finished"]


@dataclass(frozen=True, slots=True)
class HangsOn:
    """The member that fits nowhere, how many of the wanted members fit, and nodes that refuse it."""

    member: str
    fitting: int
    wanted: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class FoundGroup:
    """One group, or why it is refused; its pods by uid; the last decision; the labels of nodes by name."""

    members: Members
    group: Group | Refused
    pods: Mapping[str, Pod]
    decision: DecisionReport | None
    labels: Mapping[str, Mapping[str, str]] | None

    @property
    def key(self) -> GroupKey:
        return self.members.key

    @property
    def name(self) -> str:
        return f"{self.key.namespace}/{self.members.title}"

    @property
    def waiting(self) -> int:
        return len(self.members.of("waiting", "refused", "gated", "foreign"))

    @property
    def state(self) -> State:
        ended_count = self.members.count("succeeded") + self.members.count("failed")
        if self.members.count("succeeded") and ended_count == len(self.members.pods):
            return "Finished"
        if isinstance(self.group, Refused):
            return "Refused"
        waiting_count, owners = self.members.count("waiting"), self.members.next_owners
        missing_count = self.members.shortage(owners, self.group.min) if owners else 0
        if self.members.current_count >= self.group.min and not missing_count:
            return "Scheduled"
        if self.refusal:
            return "Refused"
        if_placed = self.members.count_for(owners, "waiting") if missing_count else self.group.min
        if min(if_placed, self.members.current_count + waiting_count) < self.group.min:
            return "Incomplete"
        return "Partial" if self.members.current_count else "Waiting"

    @property
    def refusal(self) -> str:
        """Return why the scheduler ignores its waiting members; empty if it does not."""
        if isinstance(self.group, Refused):
            return self.group.reason
        return self.members.refusal if self.members.count("waiting") else ""

    @property
    def why(self) -> str:
        """Return why its waiting members have no node, as their conditions say; empty if none does."""
        if isinstance(self.group, Refused):
            return self.group.reason
        conditions = [_condition(self.pods[uid]) for uid in self.members.of("waiting")]
        messages = Counter(message for _, message in conditions if message)
        return messages.most_common(1)[0][0] if messages else self.refusal

    @cached_property
    def ordered(self) -> list[tuple[str, Pod]]:
        """Return its pods by uid, in the order of their ranks."""
        return sorted(self.pods.items(), key=lambda item: by_index(item[1]))

    @property
    def starts(self) -> str:
        """Return the promised start of a waiting group, as the scheduler has written it; empty if it has not."""
        return promise_in(self.why) if self.waiting and not isinstance(self.group, Refused) else ""

    @cached_property
    def levels(self) -> list[LevelUse]:
        """Return how the placed members use each level that the group names, from narrow to wide."""
        if isinstance(self.group, Refused) or self.labels is None:
            return []
        labels = (
            *(group_slice.within for group_slice in self.group.slices[::-1]),
            *self.group.prefer,
            self.group.within,
        )
        keys = dict.fromkeys(label for label in labels if label)
        uids = set(self.members.of("placed", "leaving"))
        nodes = [pod.spec.node_name or "" for uid, pod in self.ordered if uid in uids]
        return list(level_uses(keys, [self.labels.get(node, {}) for node in nodes]))

    @property
    def domain(self) -> tuple[str, str] | None:
        """Return the label, and its value, of the narrowest level that the placed members share."""
        levels = (level for level in self.levels if len(level.domains) == 1 and level.domains[0])
        return next(((level.label, level.domains[0]) for level in levels), None)

    @property
    def hangs_on(self) -> HangsOn | None:
        """Return the member that decided the last decision; None if nothing waits, or no event has it."""
        about = self.decision.why.get("group") if self.decision is not None and self.waiting else None
        if not isinstance(about, dict):
            return None
        member, nodes = about.get("member"), about.get("nodes")
        fitting, wanted = about.get("fitting"), about.get("wanted")
        if not (isinstance(member, str) and isinstance(fitting, int) and isinstance(wanted, int)):
            return None
        return HangsOn(member, fitting, wanted, tuple(map(str, nodes)) if isinstance(nodes, list) else ())


@dataclass(slots=True)
class ListedObjects:
    """What the API server listed; ``pod_groups``, ``events`` and ``nodes`` are None where rights are missing."""

    pods: Sequence[Pod]
    pod_groups: Mapping[type[AnyPodGroup], Sequence[AnyPodGroup] | None]
    events: Sequence[Event] | None = None
    nodes: Sequence[ShownNode] | None = None
    schedulers: tuple[str, ...] = field(default=("mooring",))
    jobs: Sequence[Job] = ()


def find(objects: ListedObjects) -> list[FoundGroup]:
    """Return the groups that have a pod of these schedulers, by namespace and name."""
    groups, pods = GroupCache(), dict[str, Pod]()
    for job in objects.jobs:
        groups.job_changed(job.metadata.uid, job.status.succeeded or 0)
    for pod in objects.pods:
        membership, state = membership_if_readable(pod), _state(pod, objects.schedulers)
        if membership is None and state in ("waiting", "refused"):
            membership, state = membership_of_refused(pod), "refused"
        if membership is not None and state is not None:
            groups.put(pod.metadata.uid, membership, Member(state, node_times(pod)))
            pods[pod.metadata.uid] = pod
    _put_pod_groups(objects.pod_groups, groups.pod_groups)
    labels = None
    if objects.nodes is not None:
        labels = {node.metadata.name: node.metadata.labels or {} for node in objects.nodes}
    events = events_by_pod(objects.events or ())
    groups_found = []
    for members in groups:
        if not any(pods[uid].spec.scheduler_name in objects.schedulers for uid in members.pods):
            continue
        entry = groups.pod_groups.get(members.key)
        group = read_group(members.key, entry, members.requests or _asked(members, groups))
        if members.key.has_pod_group and entry.group is None and _is_unlisted(members.key, objects):
            group = Refused(UNLISTED)
        members.set_pod_group_min(group.min if isinstance(group, Group) else 0)
        members.record_start()
        decisions = (explain.latest(events.get((members.key.namespace, uid), ()), uid) for uid in members.of("waiting"))
        decision = max(
            (decision for decision in decisions if decision is not None),
            key=lambda decision: decision.when,
            default=None,
        )
        members_pods = {uid: pods[uid] for uid in members.pods}
        groups_found.append(FoundGroup(members, group, members_pods, decision, labels))
    return sorted(groups_found, key=lambda group: (group.key.namespace, group.members.title, group.key))


def _asked(members: Members, groups: GroupCache) -> list[GroupRequest]:
    """Return what most members requested, for a group without waiting members."""
    request_counts = Counter(membership.request for uid in members.pods if (membership := groups.of(uid)) is not None)
    return [request for request, _ in request_counts.most_common(1)]


def events_by_pod(events: Iterable[Event]) -> Mapping[tuple[str, str], list[Event]]:
    """Return events by namespace and uid: who may write events in one namespace may name a pod of another there."""
    events_of_pods: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        events_of_pods.setdefault((event.metadata.namespace, event.involved_object.uid), []).append(event)
    return events_of_pods


def _put_pod_groups(objects: Mapping[type[AnyPodGroup], Sequence[AnyPodGroup] | None], pod_groups: PodGroups) -> None:
    for kind, items in objects.items():
        for item in items or ():
            metadata = item.metadata
            identity = Identity(metadata.name, metadata.namespace, metadata.uid, metadata.resource_version)
            pod_groups.take(kind, Changed(identity, item))


def _is_unlisted(key: GroupKey, objects: ListedObjects) -> bool:
    kinds = [kind for kind in POD_GROUP_PATHS if PodGroups.key_of(kind, Identity(key.name, key.namespace)) == key]
    return any(objects.pod_groups.get(kind) is None for kind in kinds)


def _state(pod: Pod, schedulers: tuple[str, ...]) -> MemberState | None:
    """Return the state of a pod as a member of its group; None if it is no member any more."""
    is_going = pod.metadata.deletion_timestamp is not None
    if pod.is_over:
        return "succeeded" if pod.status.phase == "Succeeded" else "failed"
    if pod.spec.node_name:
        return "leaving" if is_going else "placed"
    if is_going:
        return None
    if pod.spec.scheduler_name not in schedulers:
        return "foreign"
    if pod.spec.scheduling_gates:
        return "gated"
    return "refused" if _condition(pod)[0] == "InvalidRequest" else "waiting"


def _condition(pod: Pod) -> tuple[str, str]:
    """Return reason and message of a pod that is not scheduled; empty if it is, or nothing is said yet."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or pod.spec.node_name:
        return "", ""
    return condition.reason or "", condition.message or ""
