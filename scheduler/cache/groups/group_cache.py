"""All groups in memory: the pods of each by uid, how each counts, whether a group has started, and the PodGroups. Pure.

A group has started once at least ``min`` members were bound, for the owners (controllers) that had members then:
recreated pods join it one by one. It is alive while a member of these owners has a node, or one has succeeded; after
that it starts again as a whole. Members of another owner, such as a job that runs again under the same name, start
together themselves.

Everything is derived from the pods and Jobs of the API server, so a new leader gets the same result. Ended pods were
placed together with live ones if they were bound no earlier than the oldest live one was created; pods of an earlier,
failed attempt were not. If too many of these pods are deleted, the group counts as one whose start was interrupted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mooring.annotations.group import GroupRequest
from mooring.kube.events import Identity
from scheduler.cache.counters import shift
from scheduler.cache.groups.pod_groups import PodGroups
from scheduler.kube.group import GroupKey, GroupMembership, NodeTimes

# waiting: can be scheduled. refused: a pod of this scheduler whose request cannot be read or is not supported. gated:
# has scheduling gates. foreign: waits for another scheduler. placed: assumed or bound. leaving: placed, and being
# deleted. failed: it had a node.
MemberState = Literal["waiting", "refused", "gated", "foreign", "placed", "leaving", "succeeded", "failed"]
# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]


class Member(NamedTuple):
    """A pod in its group; ``times`` is None if it is not bound as a member.

    ``is_latecomer``: it already had a node when it joined the group, or it names another scheduler. ``request`` is its
    annotation, if that counts for the group. ``rank`` is that of a waiting member.
    """

    state: MemberState
    times: NodeTimes | None = None
    is_latecomer: bool = False
    owner: str = ""
    role: str = ""
    request: GroupRequest | None = None
    rank: Rank | None = None

    @property
    def kind(self) -> "_Kind":
        return _Kind(self.state, self.role, self.is_latecomer, self.times is not None)


class _Kind(NamedTuple):
    """What many pods of a group have in common; ``was_bound`` as members."""

    state: MemberState
    role: str
    is_latecomer: bool
    was_bound: bool


@dataclass(slots=True)
class Members:
    """One group's pods by uid.

    ``job_successes`` are the numbers of succeeded pods by the uid of their Job: the pods may be deleted.
    """

    key: GroupKey
    title: str
    job_successes: Mapping[str, int] = field(default_factory=dict)
    pods: dict[str, Member] = field(default_factory=dict)
    # Of all pods so far, and those whose members took part in the start; empty while the group has not started.
    all_owners: set[str] = field(default_factory=set)
    start_owners: Set[str] = frozenset()
    # The annotations of the waiting members, each with the number of members.
    requests: Counter[GroupRequest] = field(default_factory=Counter)
    # How often a member has been placed, or a waiting one has gone or changed.
    changes: int = 0
    # The min for which the last one was placed; 0 if it is unknown.
    start_min: int = 0
    pod_group_min: int = 0
    # The roles of the last member's annotation, and how many members start together with them.
    roles: tuple[tuple[str, int], ...] = ()
    role_min: int = 0
    # The number of pods of each kind and owner.
    _counts: dict[_Kind, Counter[str]] = field(default_factory=dict)
    _ranks: Counter[Rank] = field(default_factory=Counter)

    def of(self, *states: MemberState) -> list[str]:
        return [uid for uid, member in self.pods.items() if member.state in states]

    def count(self, *states: MemberState) -> int:
        return sum(owners.total() for kind, owners in self._counts.items() if kind.state in states)

    def owners(self, uids: Iterable[str]) -> frozenset[str]:
        return frozenset(self.pods[uid].owner for uid in uids if uid in self.pods)

    def _owners(self, *states: MemberState) -> set[str]:
        return set[str]().union(*(owners for kind, owners in self._counts.items() if kind.state in states))

    @property
    def next_owners(self) -> Set[str]:
        """The owners of the waiting members to schedule next: first those whose members only join others."""
        owners = self._owners("waiting")
        return owners & self.start_owners or owners

    def has_owner(self, owner: str) -> bool:
        """Return whether pods of this owner wait, are placed, or took part in the start."""
        return owner in self.start_owners or owner in self._owners("waiting", "placed")

    @property
    def current_count(self) -> int:
        """How many members count for placed or waiting members, these included."""
        return self.count_for(self._owners("placed", "waiting"))

    def count_for(self, owners: Set[str], *more_states: MemberState) -> int:
        """Count those placed or in ``more_states``, and these owners' successes; fewer if a role lacks members."""
        count = self.count("placed", *more_states) + self._success_count(self._with_partners(owners))
        shortages = self._role_shortages(owners, *more_states)
        return min(count, self.role_min - sum(shortages.values())) if shortages else count

    def shortage(self, owners: Set[str], min_members: int) -> int:
        """Return how many more members must be placed before waiting ones of these owners can be."""
        return 0 if owners <= self.start_owners else max(min_members - self.count_for(owners), 0)

    def role_shortages(self, owners: Set[str], *more_states: MemberState) -> dict[str, int]:
        """Return how many members each role lacks before any waiting one of these owners can be placed."""
        return {} if owners <= self.start_owners else self._role_shortages(owners, *more_states)

    def _role_shortages(self, owners: Set[str], *more_states: MemberState) -> dict[str, int]:
        if not self.roles:
            return {}
        shortages, owners = Counter(dict(self.roles)), self._with_partners(owners)
        for kind, counts in self._counts.items():
            if kind.state in ("placed", *more_states):
                shortages[kind.role] -= counts.total()
            elif kind.state == "succeeded":
                shortages[kind.role] -= sum(counts[owner] for owner in owners & counts.keys())
        return +shortages

    @property
    def foreign_success_count(self) -> int:
        """How many have succeeded and do not count for the waiting members: they have other owners."""
        return self.count("succeeded") - sum(self._success_pods(self._with_partners(self.next_owners)).values())

    @property
    def lowest_rank(self) -> Rank:
        """The lowest priority and the earliest creation of the waiting members."""
        return min(priority for priority, _ in self._ranks), min(creation for _, creation in self._ranks)

    @property
    def has_own_pod(self) -> bool:
        return any(not kind.is_latecomer for kind in self._counts)

    @property
    def refusal(self) -> str:
        """Why no member is scheduled, whatever the group's sources say; empty if some may be."""
        foreign_count = self.count("foreign")
        return f"waiting members that name another scheduler: {foreign_count}" if foreign_count else ""

    def is_short(self, min_members: int) -> bool:
        """Return whether some were placed as members, but too few count; ``min_members`` are needed now.

        A change of annotations after that does not make the group short.
        """
        placed = [(kind, owners) for kind, owners in self._counts.items() if kind.state == "placed"]
        if all(kind.is_latecomer for kind, _ in placed):
            return False
        latecomer_count = sum(owners.total() for kind, owners in placed if kind.is_latecomer)
        return self.current_count - latecomer_count < min(min_members, self.start_min or min_members)

    def set_pod_group_min(self, min_members: int) -> None:
        """Set the min of the group's PodGroup, 0 if it has none."""
        if min_members != self.pod_group_min:
            self.record_start()
            self.pod_group_min, self.role_min = min_members, min_members or self.role_min

    def record_start(self) -> None:
        """Record whether the group has started: called before `start_owners` is read, and before a pod is lost."""
        min_members = min((number for number in (self.pod_group_min, self.start_min) if number), default=0)
        live_owners = self._live_owners()
        owners = live_owners - self.start_owners
        if not min_members or not owners:
            return
        # The Job may have more of them than there are pods.
        lost_count = self._success_count(owners) - sum(self._success_pods(owners).values())
        bound_count = sum(counts.total() for kind, counts in self._counts.items() if kind.was_bound)
        if bound_count + lost_count < min_members:
            return
        start_pods = self._start_pods(owners)
        role_counts = Counter(pod.role for pod in start_pods)
        if len(start_pods) + lost_count >= min_members and all(role_counts[role] >= n for role, n in self.roles):
            earlier_owners = self.start_owners if self.start_owners & live_owners else frozenset()
            self.start_owners = earlier_owners | {pod.owner for pod in start_pods}

    def _start_pods(self, owners: Set[str]) -> list[Member]:
        """Return the pods that were placed together with the live ones of these owners, of which there is one."""
        pods = [(pod, pod.times) for pod in self.pods.values() if pod.times is not None]
        since = min(times.creation for pod, times in pods if pod.state == "placed" and pod.owner in owners)
        return [
            pod
            for pod, times in pods
            if pod.state == "placed" or times.binding >= since or (pod.state == "succeeded" and pod.owner in owners)
        ]

    def successes_since(self, time: float) -> int:
        """Return how many succeeded pods were bound no earlier than this."""
        times = (pod.times for pod in self.pods.values() if pod.state == "succeeded")
        return sum(node_times is not None and node_times.binding >= time for node_times in times)

    def end_start(self) -> None:
        """Let the group start again if it is no longer alive."""
        if self.start_owners and not self._is_alive():
            self.start_owners = frozenset()

    def _is_alive(self) -> bool:
        return bool(self.start_owners & self._live_owners() or self._success_count(self.start_owners))

    def _live_owners(self) -> set[str]:
        kinds = self._counts.items()
        return set[str]().union(*(owners for kind, owners in kinds if kind.was_bound and kind.state == "placed"))

    def _with_partners(self, owners: Set[str]) -> Set[str]:
        """Return owners; if one of them took part in the start, also all others that did."""
        return owners | self.start_owners if owners & self.start_owners else owners

    def _success_count(self, owners: Set[str]) -> int:
        pods, jobs = self._success_pods(owners), self.job_successes
        owners_with_successes = pods.keys() | (owners & jobs.keys())
        return sum(max(pods.get(owner, 0), jobs.get(owner, 0)) for owner in owners_with_successes)

    def _success_pods(self, owners: Set[str]) -> dict[str, int]:
        """Return how many succeeded pods of each of these owners still exist."""
        kinds = self._counts.items()
        pods = sum((counts for kind, counts in kinds if kind.state == "succeeded" and kind.was_bound), Counter[str]())
        return {owner: pods[owner] for owner in owners & pods.keys()}

    def put(self, uid: str, member: Member, membership: GroupMembership) -> None:
        """Record a pod, given its own annotation. A latecomer stays a latecomer."""
        previous, request = self.pods.get(uid), membership.request
        self._remove(uid)
        is_latecomer = member.is_latecomer or (previous is not None and previous.is_latecomer)
        if member.state == "placed" and (previous is None or previous.state != "placed"):
            self.changes += 1
            self.start_min = self.start_min if is_latecomer else request.least or self.start_min
        if member.state in ("waiting", "placed"):
            self.roles = request.roles
            self.role_min = self.role_min if self.key.has_pod_group else request.least or self.role_min
        # If a rejected pod names its group wrongly, only its PodGroup can be read.
        has_request = member.state == "waiting" or (member.state == "refused" and request != GroupRequest())
        member = self.pods[uid] = member._replace(
            times=None if is_latecomer else member.times,
            is_latecomer=is_latecomer,
            owner=membership.owner,
            role=membership.role,
            request=request if has_request else None,
        )
        self._count(member, 1)
        self.end_start()

    def assume(self, uids: Collection[str], min_members: int) -> None:
        """Record that waiting members are assumed on nodes; equal ones are counted together: there may be thousands."""
        uids_of = defaultdict[Member, list[str]](list)
        for uid in uids:
            uids_of[self.pods[uid]].append(uid)
        for member, equal_uids in uids_of.items():
            placed_member = member._replace(state="placed", request=None, rank=None)
            self.pods.update(dict.fromkeys(equal_uids, placed_member))
            self._count(member, -len(equal_uids))
            self._count(placed_member, len(equal_uids))
        self.changes, self.start_min = self.changes + len(uids), min_members

    def drop(self, uid: str) -> None:
        self._remove(uid)
        self.end_start()

    def _remove(self, uid: str) -> None:
        if (member := self.pods.get(uid)) is not None:
            if member.times is not None:
                self.record_start()
            self.changes += member.state == "waiting"
            self._count(self.pods.pop(uid), -1)

    def _count(self, member: Member, change: int) -> None:
        kind = member.kind
        if (counts := self._counts.get(kind)) is None:
            counts = self._counts[kind] = Counter()
        shift(counts, member.owner, change)
        if not counts:
            del self._counts[kind]
        if member.request is not None:
            shift(self.requests, member.request, change)
        if member.rank is not None:
            shift(self._ranks, member.rank, change)

    def check(self) -> None:
        counts = Counter((member.kind, member.owner) for member in self.pods.values())
        kept_counts = {(kind, owner): n for kind, owners in self._counts.items() for owner, n in owners.items()}
        assert kept_counts == counts, f"group {self.key} is miscounted"
        assert all(self._counts.values()), f"group {self.key} keeps a kind without pods"
        assert self._ranks.total() == self.count("waiting"), "ranks are missing"
        assert not self.start_owners or self._is_alive(), "a start has no end"


class GroupCache:
    """The groups that have a pod. ``removals`` are uids of pods whose removal is ordered and not received yet."""

    def __init__(self, removals: Set[str] = frozenset()) -> None:
        self.pod_groups = PodGroups()
        self._groups: dict[GroupKey, Members] = {}
        self.memberships: dict[str, GroupMembership] = {}
        self.removals = removals
        # In order: a set of texts differs in each process.
        self._keys_of_owner = defaultdict[str, dict[GroupKey, None]](dict)
        # How many pods have succeeded according to each Job's status, by Job uid; without zeros.
        self._job_successes: dict[str, int] = {}

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group of a pod; None for a pod without a group."""
        return self.memberships.get(uid)

    def state(self, uid: str) -> MemberState | None:
        membership = self.memberships.get(uid)
        return self._groups[membership.key].pods[uid].state if membership is not None else None

    def put(self, uid: str, membership: GroupMembership, member: Member) -> None:
        """Record a pod in its group, and in no other one."""
        previous = self.memberships.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self.memberships[uid] = membership
        if (members := self._groups.get(membership.key)) is None:
            members = self._groups[membership.key] = Members(membership.key, membership.title, self._job_successes)
        members.all_owners.add(membership.owner)
        self._keys_of_owner[membership.owner][membership.key] = None
        members.put(uid, member, membership)

    def drop(self, uid: str) -> GroupKey | None:
        """Delete a pod; return the group that it was in."""
        if (membership := self.memberships.pop(uid, None)) is None:
            return None
        members = self._groups[membership.key]
        members.drop(uid)
        if not members.pods:
            del self._groups[membership.key]
            for owner in members.all_owners:
                del self._keys_of_owner[owner][membership.key]
                if not self._keys_of_owner[owner]:
                    del self._keys_of_owner[owner]
        return membership.key

    def job_changed(self, uid: str, success_count: int) -> list[GroupKey]:
        """Record how many pods of a Job have succeeded, 0 for a deleted Job; return the groups that changed."""
        if not uid or self._job_successes.get(uid, 0) == success_count:
            return []
        keys = self._keys_of_owner.get(uid, ())
        groups = [members for key in keys if (members := self._groups[key]).has_owner(uid)]
        for members in groups:
            members.record_start()
        self._job_successes[uid] = success_count
        if not success_count:
            del self._job_successes[uid]
        for members in groups:
            members.end_start()
        return [members.key for members in groups]

    def absent_jobs(self, identities: Iterable[Identity]) -> list[Identity]:
        """Return the Jobs with succeeded pods that are not in a list of all Jobs."""
        absent_uids = self._job_successes.keys() - {identity.uid for identity in identities}
        return [Identity(uid=uid) for uid in sorted(absent_uids)]

    def placed(self, key: GroupKey) -> list[str]:
        members = self._groups.get(key)
        return members.of("placed") if members is not None else []

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are exactly those in the cache."""
        for members in self._groups.values():
            assert members.pods, f"group {members.key} is kept without a pod"
            for uid, member in members.pods.items():
                assert is_assigned(uid) == (member.state in ("placed", "leaving")), f"{uid} is {member.state}"
                assert self.memberships[uid].key == members.key
            assert all(members.key in self._keys_of_owner[owner] for owner in members.all_owners)
            members.check()
        assert self._keys_of_owner.keys() == set().union(*(members.all_owners for members in self)), "owners stay"
