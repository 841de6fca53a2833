"""The pods of each group by uid, and how each counts. Pure.

Each uid has one state. The event handlers and the decisions set it; `Members.check` compares the placed members with
the cache.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from mooring.annotations.group import GroupRequest
from scheduler.cache.groups.start import NodeTimes, Phase, Start
from scheduler.kube.group_membership import GroupKey, GroupMembership

# waiting: can be scheduled. refused: a pod of this scheduler whose request cannot be read or is not supported. gated:
# has scheduling gates. foreign: waits for another scheduler. placed: assumed or bound. leaving: placed, and being
# deleted. failed: it had a node.
Standing = Literal["waiting", "refused", "gated", "foreign", "placed", "leaving", "succeeded", "failed"]
# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]
_NOTHING = GroupRequest()
_ON_A_NODE = ("placed", "leaving")
_PHASES: Mapping[Standing, Phase] = {
    "placed": "alive",
    "leaving": "gone",
    "succeeded": "succeeded",
    "failed": "gone",
}
K = TypeVar("K", bound=Hashable)


class MemberState(NamedTuple):
    """A pod's state in its group; ``times`` is when it was created and bound, None while it is not bound.

    ``is_latecomer``: it already had a node when it joined the group. ``is_foreign``: it names another scheduler.
    ``owner`` is the uid of its controller, and ``request`` its annotation, if that counts for the group. ``rank`` is
    that of a waiting member.
    """

    standing: Standing
    times: NodeTimes | None = None
    is_latecomer: bool = False
    is_foreign: bool = False
    owner: str = ""
    role: str = ""
    request: GroupRequest | None = None
    rank: Rank | None = None


@dataclass(slots=True)
class Members:
    """One group's pods, each with its state."""

    key: GroupKey
    title: str
    start: Start = field(default_factory=Start)
    states: dict[str, MemberState] = field(default_factory=dict)
    counts: Counter[Standing] = field(default_factory=Counter)
    # The annotations of the waiting members, each with the number of members.
    requests: Counter[GroupRequest] = field(default_factory=Counter)
    # How often a member has been placed.
    arrivals: int = 0
    # The min for which the last one was placed; 0 if it is unknown.
    start_min: int = 0
    # The roles of the last member's annotation, and how many members start together with them.
    roles: tuple[tuple[str, int], ...] = ()
    role_min: int = 0
    # How many members there are by role, standing and owner.
    _role_counts: Counter[tuple[str, Standing, str]] = field(default_factory=Counter)
    # How many placed members joined the group with a node.
    _latecomers: int = 0
    # How many wait, and how many are placed, by owner.
    _waiting: Counter[str] = field(default_factory=Counter)
    _placed: Counter[str] = field(default_factory=Counter)
    # Counts of the waiting members by value. They have few distinct priorities and creation times (one per second):
    # there may be any number of members, and each is added and removed by itself.
    _priorities: Counter[int] = field(default_factory=Counter)
    _creations: Counter[str] = field(default_factory=Counter)

    @property
    def counted_as_placed(self) -> int:
        """How many members count as placed for placed or waiting members, these included."""
        return self.count_for(self._placed.keys() | self._waiting.keys())

    def count_for(self, owners: Set[str]) -> int:
        """Return how many members count for members of these owners: all placed ones, and the succeeded ones of these
        owners. If a role lacks members, too few do, however many there are.
        """
        count = self.counts["placed"] + self.start.succeeded(self.start.with_partners(owners))
        return self._with_roles(count, self._missing_by_role(owners))

    def count_if_placed(self, owners: Set[str]) -> int:
        """Return how many members would count if all waiting ones were placed."""
        missing = self._missing_by_role(owners, "waiting")
        count = self.counts["placed"] + self.start.succeeded(self.start.with_partners(owners)) + self.counts["waiting"]
        return self._with_roles(count, missing)

    def _with_roles(self, count: int, missing: Mapping[str, int]) -> int:
        return min(count, self.role_min - sum(missing.values())) if missing else count

    def missing_by_role(self, owners: Set[str], *also: Standing) -> dict[str, int]:
        """Return how many members each role lacks before any waiting one of these owners can be placed.

        Those in ``also`` count as placed.
        """
        return {} if owners <= self.start.owners else self._missing_by_role(owners, *also)

    def _missing_by_role(self, owners: Set[str], *also: Standing) -> dict[str, int]:
        missing, owners = dict(self.roles), self.start.with_partners(owners) if self.roles else owners
        for (role, standing, owner), count in self._role_counts.items() if missing else ():
            if role in missing and (standing in ("placed", *also) or (standing == "succeeded" and owner in owners)):
                missing[role] -= count
        return {role: count for role, count in missing.items() if count > 0}

    def count_missing(self, owners: Set[str], min_members: int) -> int:
        """Return how many more members must be placed before waiting ones of these owners can be; 0 if any
        number may.
        """
        return 0 if owners <= self.start.owners else max(min_members - self.count_for(owners), 0)

    def has_owner(self, owner: str) -> bool:
        """Return whether pods of this owner wait, are placed, or took part in the start."""
        return owner in self._waiting or owner in self._placed or owner in self.start.owners

    @property
    def next_owners(self) -> Set[str]:
        """The owners of the waiting members to schedule next: first those whose members only join others."""
        return (self._waiting.keys() & self.start.owners) or self._waiting.keys()

    def next_members(self) -> list[str]:
        owners = self.next_owners
        return [uid for uid in self.of("waiting") if self.states[uid].owner in owners]

    def owners(self, uids: Iterable[str]) -> frozenset[str]:
        return frozenset(self.states[uid].owner for uid in uids if uid in self.states)

    @property
    def succeeded_of_others(self) -> int:
        """How many have succeeded and do not count for the waiting members, because they have other owners."""
        owners = self.start.with_partners(self.next_owners)
        return self.counts["succeeded"] - sum(map(self.start.succeeded_pods, owners))

    @property
    def lowest_rank(self) -> Rank:
        """Return the lowest priority and the earliest creation of the waiting members; there is at least one."""
        return min(self._priorities), min(self._creations)

    @property
    def any_ours(self) -> bool:
        return not all(state.is_foreign for state in self.states.values())

    @property
    def refusal(self) -> str:
        """Return why no member is scheduled, whatever the group's sources say; empty if some may be."""
        foreign = self.counts["foreign"]
        return f"waiting members that name another scheduler: {foreign}" if foreign else ""

    def is_short(self, min_members: int) -> bool:
        """Return whether some were placed as members, but too few count; ``min_members`` are needed now.

        A pod's owner can change its annotation after it has a node, and the requests of the other members. Neither
        makes the group short.
        """
        if self.counts["placed"] == self._latecomers:
            return False
        return self.counted_as_placed - self._latecomers < min(min_members, self.start_min or min_members)

    def judge(self, min_members: int) -> None:
        """Record whether the group has started; ``min_members`` is from its PodGroup, 0 if it has none."""
        self.role_min = min_members or self.role_min
        numbers = [number for number in (min_members, self.start_min) if number]
        if numbers:
            self.start.judge(min(numbers), self.roles)

    def of(self, *standings: Standing) -> list[str]:
        return [uid for uid, state in self.states.items() if state.standing in standings]

    def put(self, uid: str, state: MemberState, membership: GroupMembership) -> None:
        """Record a pod's state, given its own annotation. A latecomer stays a latecomer."""
        previous, asked = self.states.get(uid), membership.asked
        is_latecomer = state.is_latecomer or (previous is not None and previous.is_latecomer)
        if state.standing == "placed" and (previous is None or previous.standing != "placed"):
            self.arrivals += 1
            self.start_min = self.start_min if is_latecomer else asked.least or self.start_min
        if state.standing in ("waiting", "placed"):
            self.roles = asked.roles
            self.role_min = self.role_min if self.key.has_pod_group else asked.least or self.role_min
        # If a rejected pod names its group wrongly, only its PodGroup can be read.
        counts = state.standing == "waiting" or (state.standing == "refused" and asked != _NOTHING)
        self._remove(uid)
        state = self.states[uid] = state._replace(
            is_latecomer=is_latecomer,
            owner=membership.owner,
            role=membership.role,
            request=asked if counts else None,
        )
        self._count(state, 1)
        phase = _PHASES.get(state.standing)
        if phase is None or state.times is None or is_latecomer:
            self.start.drop(uid)
        else:
            self.start.put(uid, phase, state.owner, state.times, state.role)

    def place(self, uids: Collection[str], min_members: int) -> None:
        """Record that waiting members are assumed on nodes. There may be thousands: equal ones are counted together."""
        alike = defaultdict[MemberState, list[str]](list)
        for uid in uids:
            alike[self.states[uid]].append(uid)
        for state, alike_uids in alike.items():
            placed = state._replace(standing="placed", request=None, rank=None)
            self.states.update(dict.fromkeys(alike_uids, placed))
            self._count(state, -len(alike_uids))
            self._count(placed, len(alike_uids))
        self.arrivals, self.start_min = self.arrivals + len(uids), min_members

    def drop(self, uid: str) -> None:
        self._remove(uid)
        self.start.drop(uid)

    def _remove(self, uid: str) -> None:
        if (state := self.states.pop(uid, None)) is not None:
            self._count(state, -1)

    def _count(self, state: MemberState, change: int) -> None:
        _add(self.counts, state.standing, change)
        if state.standing == "waiting":
            _add(self._waiting, state.owner, change)
        elif state.standing == "placed":
            _add(self._placed, state.owner, change)
            self._latecomers += change * state.is_latecomer
        if state.role:
            _add(self._role_counts, (state.role, state.standing, state.owner), change)
        if state.request is not None:
            _add(self.requests, state.request, change)
        if state.rank is not None:
            _add(self._priorities, state.rank[0], change)
            _add(self._creations, state.rank[1], change)

    def check(self) -> None:
        states = self.states.values()
        assert self.counts == Counter(state.standing for state in states), f"group {self.key} is miscounted"
        for standing, owners in (("waiting", self._waiting), ("placed", self._placed)):
            owners_of = Counter(state.owner for state in states if state.standing == standing)
            assert owners == owners_of, f"the owners of those that are {standing} in {self.key} differ"
        assert self._latecomers == sum(state.is_latecomer and state.standing == "placed" for state in states)
        assert self._priorities.total() == self._creations.total() == self.counts["waiting"], "ranks are missing"
        self.start.check()


def _add(counts: Counter[K], key: K, change: int) -> None:
    """Add to the count of a key; zeros are removed."""
    if count := counts.get(key, 0) + change:
        counts[key] = count
    else:
        del counts[key]


class GroupsByPod:
    """All groups that have a pod."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Members] = {}
        self._of: dict[str, GroupMembership] = {}
        # How many pods have succeeded according to each Job's status, by Job uid; without zeros.
        self._job_successes: dict[str, int] = {}

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group of a pod; None for a pod without a group."""
        return self._of.get(uid)

    def standing(self, uid: str) -> Standing | None:
        membership = self._of.get(uid)
        return self._groups[membership.key].states[uid].standing if membership is not None else None

    def put(self, uid: str, membership: GroupMembership, state: MemberState) -> None:
        """Record a pod's state in its group, in place of its state in any group."""
        previous = self._of.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self._of[uid] = membership
        members = self._groups.get(membership.key)
        if members is None:
            start = Start(self._job_successes)
            members = self._groups[membership.key] = Members(membership.key, membership.title, start)
        members.put(uid, state, membership)

    def drop(self, uid: str) -> GroupKey | None:
        """Delete a pod; return the group that it was in."""
        membership = self._of.pop(uid, None)
        if membership is None:
            return None
        members = self._groups[membership.key]
        members.drop(uid)
        if not members.states:
            del self._groups[membership.key]
        return membership.key

    def job_changed(self, uid: str, succeeded: int) -> list[GroupKey]:
        """Record how many pods of a Job have succeeded, 0 for a deleted Job; return the groups that changed."""
        if not uid or self._job_successes.get(uid, 0) == succeeded:
            return []
        self._job_successes[uid] = succeeded
        if not succeeded:
            del self._job_successes[uid]
        groups = [members for members in self._groups.values() if members.has_owner(uid)]
        for members in groups:
            members.start.end()
        return [members.key for members in groups]

    def keep_jobs(self, uids: Set[str]) -> list[GroupKey]:
        """Drop all Jobs except these; return the groups that changed."""
        return [key for uid in self._job_successes.keys() - uids for key in self.job_changed(uid, 0)]

    def uids(self, *standings: Standing) -> list[str]:
        return [uid for members in self._groups.values() for uid in members.of(*standings)]

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are exactly those in the cache."""
        for members in self._groups.values():
            assert members.states, f"group {members.key} is kept without a pod"
            for uid, state in members.states.items():
                assert is_assigned(uid) == (state.standing in _ON_A_NODE), f"{uid} is {state.standing}"
                assert self._of[uid].key == members.key
            members.check()
