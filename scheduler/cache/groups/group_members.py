"""The pods of one group, and how each counts. Pure.

Each uid has one state. The pods are counted by standing and by kind. Sums about owners or roles read the kinds, which
are few unless a group has many owners, such as Jobs with one pod each. Only a start reads all pods
(`scheduler.cache.groups.start`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from mooring.annotations.group import GroupRequest
from scheduler.cache.groups.start import MemberState, Rank, Standing, placed_together
from scheduler.kube.group_membership import GroupKey, GroupMembership

_NOTHING = GroupRequest()
K = TypeVar("K", bound=Hashable)


class _Kind(NamedTuple):
    """What the pods of one kind have in common; ``was_bound`` as members."""

    standing: Standing
    owner: str
    role: str
    is_latecomer: bool
    was_bound: bool


@dataclass(slots=True)
class Members:
    """One group's pods, each with its state.

    ``job_successes`` are the numbers of succeeded pods according to each Job's status, by Job uid, because the pods may
    be deleted.
    """

    key: GroupKey
    title: str
    job_successes: Mapping[str, int] = field(default_factory=dict)
    states: dict[str, MemberState] = field(default_factory=dict)
    # The owners whose members took part in the start; empty while the group has not started.
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
    _counts: Counter[Standing] = field(default_factory=Counter)
    _kinds: Counter[_Kind] = field(default_factory=Counter)
    _ranks: Counter[Rank] = field(default_factory=Counter)

    def count(self, standing: Standing) -> int:
        return self._counts[standing]

    def _owners(self, *standings: Standing) -> set[str]:
        return {kind.owner for kind in self._kinds if kind.standing in standings}

    @property
    def counted_as_placed(self) -> int:
        """How many members count as placed for placed or waiting members, these included."""
        return self.count_for(self._owners("placed", "waiting"))

    def count_for(self, owners: Set[str]) -> int:
        """Return how many members count for members of these owners: all placed ones, and the succeeded ones of these
        owners. If a role lacks members, too few do, however many there are.
        """
        return self._count_with(owners)

    def count_if_placed(self, owners: Set[str]) -> int:
        """Return how many members would count if all waiting ones were placed."""
        return self._count_with(owners, "waiting")

    def _count_with(self, owners: Set[str], *also: Standing) -> int:
        count = sum(map(self.count, ("placed", *also))) + self._succeeded(self._with_partners(owners))
        missing = self._missing_by_role(owners, *also)
        return min(count, self.role_min - sum(missing.values())) if missing else count

    def missing_by_role(self, owners: Set[str], *also: Standing) -> dict[str, int]:
        """Return how many members each role lacks before any waiting one of these owners can be placed.

        Those in ``also`` count as placed.
        """
        return {} if owners <= self.start_owners else self._missing_by_role(owners, *also)

    def _missing_by_role(self, owners: Set[str], *also: Standing) -> dict[str, int]:
        missing, owners = dict(self.roles), self._with_partners(owners)
        for kind, count in self._kinds.items() if missing else ():
            is_counted = kind.standing in ("placed", *also) or (kind.standing == "succeeded" and kind.owner in owners)
            if kind.role in missing and is_counted:
                missing[kind.role] -= count
        return {role: count for role, count in missing.items() if count > 0}

    def count_missing(self, owners: Set[str], min_members: int) -> int:
        """Return how many more members must be placed before waiting ones of these owners can be; 0 if any
        number may.
        """
        return 0 if owners <= self.start_owners else max(min_members - self.count_for(owners), 0)

    def has_owner(self, owner: str) -> bool:
        """Return whether pods of this owner wait, are placed, or took part in the start."""
        return owner in self.start_owners or any(
            kind.owner == owner and kind.standing in ("waiting", "placed") for kind in self._kinds
        )

    @property
    def next_owners(self) -> Set[str]:
        """The owners of the waiting members to schedule next: first those whose members only join others."""
        owners = self._owners("waiting")
        return owners & self.start_owners or owners

    def next_members(self) -> list[str]:
        owners = self.next_owners
        return [uid for uid in self.of("waiting") if self.states[uid].owner in owners]

    def owners(self, uids: Iterable[str]) -> frozenset[str]:
        return frozenset(self.states[uid].owner for uid in uids if uid in self.states)

    @property
    def succeeded_of_others(self) -> int:
        """How many have succeeded and do not count for the waiting members, because they have other owners."""
        return self.count("succeeded") - self._succeeded_pods(self._with_partners(self.next_owners)).total()

    @property
    def lowest_rank(self) -> Rank:
        """Return the lowest priority and the earliest creation of the waiting members; there is at least one."""
        return min(priority for priority, _ in self._ranks), min(creation for _, creation in self._ranks)

    @property
    def any_ours(self) -> bool:
        return any(not kind.is_latecomer for kind in self._kinds)

    @property
    def refusal(self) -> str:
        """Return why no member is scheduled, whatever the group's sources say; empty if some may be."""
        foreign = self.count("foreign")
        return f"waiting members that name another scheduler: {foreign}" if foreign else ""

    def is_short(self, min_members: int) -> bool:
        """Return whether some were placed as members, but too few count; ``min_members`` are needed now.

        A pod's owner can change its annotation after it has a node, and the requests of the other members. Neither
        makes the group short.
        """
        latecomers = sum(n for kind, n in self._kinds.items() if kind.is_latecomer and kind.standing == "placed")
        if self.count("placed") == latecomers:
            return False
        return self.counted_as_placed - latecomers < min(min_members, self.start_min or min_members)

    def of(self, *standings: Standing) -> list[str]:
        return [uid for uid, state in self.states.items() if state.standing in standings]

    def set_min(self, min_members: int) -> None:
        """Set the min of the group's PodGroup, 0 if it has none."""
        if min_members != self.pod_group_min:
            self.judge()
            self.pod_group_min, self.role_min = min_members, min_members or self.role_min

    def judge(self) -> None:
        """Record whether the group has started: to be called before `start_owners` is read, after pods were put.

        Before anything is lost from which that can be seen, it is called here.
        """
        least = min((number for number in (self.pod_group_min, self.start_min) if number), default=0)
        live_owners = self._live_owners()
        owners = live_owners - self.start_owners
        if not least or not owners:
            return
        # The Job may have more of them than there are pods.
        gone_count = self._succeeded(owners) - self._succeeded_pods(owners).total()
        bound_count = sum(count for kind, count in self._kinds.items() if kind.was_bound)
        if bound_count + gone_count < least:
            return
        pods = placed_together(self.states.values(), owners)
        role_counts = Counter(state.role for state in pods)
        if len(pods) + gone_count >= least and all(role_counts[role] >= count for role, count in self.roles):
            earlier_owners = self.start_owners if self.start_owners & live_owners else frozenset()
            self.start_owners = earlier_owners | {state.owner for state in pods}

    def bound_since(self, time: float) -> int:
        """Return how many succeeded pods were bound no earlier than this."""
        succeeded = (state.bound for state in self.states.values() if state.standing == "succeeded")
        return sum(times is not None and times.bound >= time for times in succeeded)

    def end_start(self) -> None:
        """Let the group start again if it is no longer alive."""
        if self.start_owners and not self._is_alive():
            self.start_owners = frozenset()

    def _is_alive(self) -> bool:
        return bool(self.start_owners & self._live_owners() or self._succeeded(self.start_owners))

    def _live_owners(self) -> set[str]:
        return {kind.owner for kind in self._kinds if kind.was_bound and kind.standing == "placed"}

    def _with_partners(self, owners: Set[str]) -> Set[str]:
        """Return owners; if one of them took part in the start, also all others that did."""
        return owners | self.start_owners if owners & self.start_owners else owners

    def _succeeded(self, owners: Set[str]) -> int:
        """Return how many pods of these owners have succeeded."""
        pods = self._succeeded_pods(owners)
        return sum(max(pods[owner], self.job_successes.get(owner, 0)) for owner in owners)

    def _succeeded_pods(self, owners: Set[str]) -> Counter[str]:
        """Return how many succeeded pods of each of these owners still exist."""
        counts = Counter[str]()
        for kind, count in self._kinds.items():
            if kind.standing == "succeeded" and kind.was_bound and kind.owner in owners:
                counts[kind.owner] += count
        return counts

    def put(self, uid: str, state: MemberState, membership: GroupMembership) -> None:
        """Record a pod's state, given its own annotation. A latecomer stays a latecomer."""
        previous, asked = self.states.get(uid), membership.asked
        self._remove(uid)
        is_latecomer = state.is_latecomer or (previous is not None and previous.is_latecomer)
        if state.standing == "placed" and (previous is None or previous.standing != "placed"):
            self.changes += 1
            self.start_min = self.start_min if is_latecomer else asked.least or self.start_min
        if state.standing in ("waiting", "placed"):
            self.roles = asked.roles
            self.role_min = self.role_min if self.key.has_pod_group else asked.least or self.role_min
        # If a rejected pod names its group wrongly, only its PodGroup can be read.
        counts = state.standing == "waiting" or (state.standing == "refused" and asked != _NOTHING)
        state = self.states[uid] = state._replace(
            is_latecomer=is_latecomer,
            owner=membership.owner,
            role=membership.role,
            request=asked if counts else None,
        )
        self._count(state, 1)
        self.end_start()

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
        self.changes, self.start_min = self.changes + len(uids), min_members

    def drop(self, uid: str) -> None:
        self._remove(uid)
        self.end_start()

    def _remove(self, uid: str) -> None:
        if (state := self.states.get(uid)) is not None:
            if state.bound is not None:
                self.judge()
            self.changes += state.standing == "waiting"
            del self.states[uid]
            self._count(state, -1)

    def _count(self, state: MemberState, change: int) -> None:
        self._counts[state.standing] += change
        _add(self._kinds, _kind_of(state), change)
        if state.request is not None:
            _add(self.requests, state.request, change)
        if state.rank is not None:
            _add(self._ranks, state.rank, change)

    def check(self) -> None:
        standings = Counter(state.standing for state in self.states.values())
        assert self._counts == standings, f"group {self.key} is miscounted"
        assert self._kinds == Counter(map(_kind_of, self.states.values())), f"group {self.key} is miscounted"
        assert self._ranks.total() == self.count("waiting"), "ranks are missing"
        assert not self.start_owners or self._is_alive(), "a start has no end"


def _kind_of(state: MemberState) -> _Kind:
    return _Kind(state.standing, state.owner, state.role, state.is_latecomer, state.bound is not None)


def _add(counts: Counter[K], key: K, change: int) -> None:
    """Add to the count of a key; zeros are removed."""
    if count := counts.get(key, 0) + change:
        counts[key] = count
    else:
        del counts[key]
