"""The pods of each group by uid, and what each counts for. Pure.

A uid is in one standing. The event handlers say which, and the decisions; `Members.check` proves the placed ones
against the cache.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from mooring.annotations.group import GroupRequest
from scheduler.cache.groups.run import NOW, NodeTimes, Run
from scheduler.kube.group_membership import GroupKey, GroupMembership

# waiting: may be decided about. refused: ours, but what it asks for cannot be read or is not supported. gated: has
# scheduling gates. foreign: waits for another scheduler. placed: assumed or bound. leaving: placed, and being deleted.
Standing = Literal["waiting", "refused", "gated", "foreign", "placed", "leaving", "succeeded"]
# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]
_NOTHING = GroupRequest()
_ON_A_NODE = ("placed", "leaving")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a pod is to its group, and when it had a node.

    ``is_latecomer``: it has come to the group with a node. ``is_foreign``: it names another scheduler. ``start_min`` is
    the min of the start that has placed it, 0 if that is not known, None if none has. ``request`` is its annotation, if
    that counts for the group. ``rank`` is that of a waiting member.
    """

    standing: Standing
    times: NodeTimes = NOW
    is_latecomer: bool = False
    is_foreign: bool = False
    start_min: int | None = None
    request: GroupRequest | None = None
    rank: Rank | None = None


@dataclass(slots=True)
class Members:
    """One group's pods, each with what it is to the group."""

    key: GroupKey
    title: str
    states: dict[str, MemberState] = field(default_factory=dict)
    counts: Counter[Standing] = field(default_factory=Counter)
    # The annotations of the waiting members: with how many each is.
    requests: Counter[GroupRequest] = field(default_factory=Counter)
    # How often one has come to be placed.
    arrivals: int = 0
    run: Run = field(default_factory=Run)
    # Those that a start has placed: how many there are by its min.
    _starts: Counter[int] = field(default_factory=Counter)
    # Of the waiting members. They have few priorities, and as many creation times as there were seconds in which some
    # were made: there may be any number of members, and each of them comes and goes by itself.
    _priorities: Counter[int] = field(default_factory=Counter)
    _creations: Counter[str] = field(default_factory=Counter)

    @property
    def counting(self) -> int:
        """How many members count as placed: those that have succeeded do so until the end of their run."""
        return self.counts["placed"] + self.run.succeeded

    @property
    def lowest_rank(self) -> Rank:
        """Return the lowest priority and the earliest creation of the waiting members; there are some."""
        return min(self._priorities), min(self._creations)

    @property
    def any_ours(self) -> bool:
        """Return whether a member names this scheduler."""
        return not all(state.is_foreign for state in self.states.values())

    @property
    def refusal(self) -> str:
        """Return why none is decided about, whatever the group's sources say; empty if some may be."""
        foreign = self.counts["foreign"]
        return f"waiting pods of it that name another scheduler: {foreign}" if foreign else ""

    def is_cut_short(self, min_members: int) -> bool:
        """Return whether some were placed by a start for more than are placed now; ``min_members`` are needed now.

        Those count that were placed as members. A pod's owner can change its annotation when it has a node, and what
        the others ask for: neither makes the group one whose start was cut short.
        """
        if not self._starts:
            return False
        count = self._starts.total() + self.run.succeeded
        return count < (min_members if 0 in self._starts else min(min_members, max(self._starts)))

    def of(self, *standings: Standing) -> list[str]:
        """Return the uids of the members of these standings."""
        return [uid for uid, state in self.states.items() if state.standing in standings]

    def put(self, uid: str, state: MemberState, asked: GroupRequest) -> None:
        """Record what a pod is; ``asked`` is what its own annotation says. Once a latecomer it stays one."""
        previous = self.states.get(uid)
        is_latecomer = state.is_latecomer or (previous is not None and previous.is_latecomer)
        start_min, request = None, None
        if state.standing == "placed":
            self.arrivals += previous is None or previous.standing != "placed"
            if not is_latecomer:
                start_min = state.start_min or (previous.start_min if previous is not None else 0) or asked.min or 0
        elif state.standing == "waiting" or (state.standing == "refused" and asked != _NOTHING):
            # Of a refused pod that names its group wrongly only the PodGroup can be read.
            request = asked
        self._remove(uid)
        self.states[uid] = replace(state, is_latecomer=is_latecomer, start_min=start_min, request=request)
        self._count(self.states[uid], 1)
        self._update_run(uid, state, was_on_node=previous is not None and previous.standing in _ON_A_NODE)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._remove(uid)
        self._update_run(uid)

    def _update_run(self, uid: str, state: MemberState | None = None, *, was_on_node: bool = False) -> None:
        """Record what a pod, None for one that is gone, is to the group's run."""
        if not self.counts["placed"]:
            self.run.end()
        if state is None or state.standing != "succeeded":
            self.run.drop(uid)
        if state is not None and state.standing == "placed":
            self.run.place(state.times)
        elif state is not None and state.standing == "succeeded":
            self.run.succeed(uid, state.times, was_on_node=was_on_node)

    def _remove(self, uid: str) -> None:
        if (state := self.states.pop(uid, None)) is not None:
            self._count(state, -1)

    def _count(self, state: MemberState, change: int) -> None:
        priority, creation = state.rank or (None, None)
        _add(self.counts, state.standing, change)
        _add(self._starts, state.start_min, change)
        _add(self.requests, state.request, change)
        _add(self._priorities, priority, change)
        _add(self._creations, creation, change)

    def check(self) -> None:
        """Raise AssertionError unless what is counted is what the members are."""
        states = self.states.values()
        assert self.counts == Counter(state.standing for state in states), f"group {self.key} is miscounted"
        placed_by_start = [state.standing == "placed" and not state.is_latecomer for state in states]
        assert placed_by_start == [state.start_min is not None for state in states], f"who began in {self.key} differs"
        assert self._starts == Counter(state.start_min for state in states if state.start_min is not None)
        assert self._priorities.total() == self._creations.total() == self.counts["waiting"], "ranks are missing"
        assert (self.run.began is not None) == bool(self.counts["placed"]), f"a run of {self.key} differs"
        self.run.check(set(self.of("succeeded")))


def _add(counts: Counter[K], key: K | None, change: int) -> None:
    """Count what there is of a key, None for nothing; keep no zeros."""
    if key is not None:
        counts[key] += change
        if not counts[key]:
            del counts[key]


class GroupsByPod:
    """All groups that have a pod."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Members] = {}
        self._of: dict[str, GroupMembership] = {}

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group that a pod is in; None for a pod on its own."""
        return self._of.get(uid)

    def standing(self, uid: str) -> Standing | None:
        membership = self._of.get(uid)
        return self._groups[membership.key].states[uid].standing if membership is not None else None

    def put(self, uid: str, membership: GroupMembership, state: MemberState) -> None:
        """Record what a pod is to its group, in place of what it was to any."""
        previous = self._of.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self._of[uid] = membership
        members = self._groups.get(membership.key)
        if members is None:
            members = self._groups[membership.key] = Members(membership.key, membership.title)
        members.put(uid, state, membership.asked)

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

    def uids(self, *standings: Standing) -> list[str]:
        return [uid for members in self._groups.values() for uid in members.of(*standings)]

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are those that the cache has."""
        for members in self._groups.values():
            assert members.states, f"group {members.key} is kept without a pod"
            for uid, state in members.states.items():
                assert is_assigned(uid) == (state.standing in _ON_A_NODE), f"{uid} is {state.standing}"
                assert self._of[uid].key == members.key
            members.check()
