"""The pods of each group by uid, and what each counts for. Pure.

A uid is in one standing. The event handlers say which, and the decisions; `Members.check` proves the placed ones
against the cache.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Literal

from mooring.annotations.group import GroupRequest
from scheduler.cache.groups.run import NOW, NodeTimes, Run
from scheduler.kube.group_membership import GroupKey, GroupMembership

# waiting: may be decided about. refused: ours, but what it asks for cannot be read or is not supported. gated: has
# scheduling gates. foreign: waits for another scheduler. placed: assumed or bound. leaving: placed, and being deleted.
Standing = Literal["waiting", "refused", "gated", "foreign", "placed", "leaving", "succeeded"]
_NOTHING = GroupRequest()
_ON_A_NODE = ("placed", "leaving")


@dataclass(slots=True)
class Members:
    """One group's pods, each with its standing."""

    key: GroupKey
    title: str
    standings: dict[str, Standing] = field(default_factory=dict)
    counts: Counter[Standing] = field(default_factory=Counter)
    # The annotations of the waiting members: with how many each is.
    requests: Counter[GroupRequest] = field(default_factory=Counter)
    # How often one has come to be placed.
    arrivals: int = 0
    run: Run = field(default_factory=Run)
    # Those that name another scheduler.
    _foreign: set[str] = field(default_factory=set)
    _request_of: dict[str, GroupRequest] = field(default_factory=dict)
    # The min for which each was placed as a member, 0 if it is not known; and how many there are of each.
    _began_for: dict[str, int] = field(default_factory=dict)
    _starts: Counter[int] = field(default_factory=Counter)

    @property
    def counting(self) -> int:
        """How many members count as placed: those that have succeeded do so until the end of their run."""
        return self.counts["placed"] + self.run.succeeded

    @property
    def any_ours(self) -> bool:
        """Return whether a member names this scheduler."""
        return len(self._foreign) < len(self.standings)

    @property
    def refusal(self) -> str:
        """Return why none is decided about, whatever the group's sources say; empty if nothing speaks against it."""
        foreign = self.counts["foreign"]
        return f"waiting pods of it that name another scheduler: {foreign}" if foreign else ""

    def is_cut_short(self, min_members: int) -> bool:
        """Return whether some were placed by a start for more than are placed now; ``min_members`` are needed now.

        Those count that were placed as members. A pod's owner can change its annotation when it has a node, and what
        the others ask for: neither makes the group one whose start was cut short.
        """
        if not self._began_for:
            return False
        starts = len(self._began_for) + self.run.succeeded
        return starts < (min_members if 0 in self._starts else min(min_members, max(self._starts)))

    def of(self, *standings: Standing) -> list[str]:
        """Return the uids of the members of these standings."""
        return [uid for uid, standing in self.standings.items() if standing in standings]

    def put(
        self,
        uid: str,
        standing: Standing,
        request: GroupRequest,
        *,
        is_latecomer: bool = False,
        start_min: int = 0,
        times: NodeTimes = NOW,
        is_foreign: bool = False,
    ) -> None:
        """Record a pod's standing; a latecomer has come to the group with a node, a foreign one is another scheduler's.

        ``start_min``: the min of its start; ``times``: when it had a node.
        """
        previous = self.standings.get(uid)
        self.arrivals += standing == "placed" and previous != "placed"
        old_min = self._began_for.get(uid, 0)
        self._remove(uid)
        self.standings[uid] = standing
        self.counts[standing] += 1
        if is_foreign:
            self._foreign.add(uid)
        # Of a refused pod that names its group wrongly nothing is known but the PodGroup.
        if standing == "waiting" or (standing == "refused" and request != _NOTHING):
            self._request_of[uid] = request
            self.requests[request] += 1
        if standing == "placed" and not is_latecomer:
            self._began_for[uid] = start_min or old_min or request.min or 0
            self._starts[self._began_for[uid]] += 1
        self._update_run(uid, standing, times, was_on_node=previous in _ON_A_NODE)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._remove(uid)
        self._update_run(uid)

    def _update_run(
        self, uid: str, standing: Standing | None = None, times: NodeTimes = NOW, *, was_on_node: bool = False
    ) -> None:
        """Record what a pod's standing, None for one that is gone, is to the group's run."""
        if not self.counts["placed"]:
            self.run.end()
        if standing != "succeeded":
            self.run.drop(uid)
        if standing == "placed":
            self.run.place(times)
        elif standing == "succeeded":
            self.run.succeed(uid, times, was_on_node=was_on_node)

    def _remove(self, uid: str) -> None:
        standing = self.standings.pop(uid, None)
        if standing is None:
            return
        self._foreign.discard(uid)
        self.counts[standing] -= 1
        start_min = self._began_for.pop(uid, None)
        if start_min is not None:
            self._starts[start_min] -= 1
            self._starts = self._starts if self._starts[start_min] else +self._starts
        request = self._request_of.pop(uid, None)
        if request is not None:
            self.requests[request] -= 1
            if not self.requests[request]:
                del self.requests[request]

    def check(self, latecomers: Set[str]) -> None:
        """Raise AssertionError unless those that a start has placed are the placed ones that are no latecomers."""
        assert self._began_for.keys() == set(self.of("placed")) - latecomers, f"who began in {self.key} differs"
        assert self._starts == Counter(self._began_for.values()), f"group {self.key} is miscounted"
        assert (self.run.began is not None) == bool(self.counts["placed"]), f"a run of {self.key} differs"
        self.run.check(set(self.of("succeeded")))


class GroupsByPod:
    """All groups that have a pod."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Members] = {}
        self._of: dict[str, GroupMembership] = {}
        # Those that have come to their group with a node.
        self._latecomers: set[str] = set()

    def __iter__(self) -> Iterator[Members]:
        yield from self._groups.values()

    def get(self, key: GroupKey) -> Members | None:
        return self._groups.get(key)

    def of(self, uid: str) -> GroupMembership | None:
        """Return the group that a pod is in; None for a pod on its own."""
        return self._of.get(uid)

    def standing(self, uid: str) -> Standing | None:
        membership = self._of.get(uid)
        return self._groups[membership.key].standings[uid] if membership is not None else None

    def put(
        self,
        uid: str,
        membership: GroupMembership,
        standing: Standing,
        *,
        is_latecomer: bool = False,
        start_min: int = 0,
        times: NodeTimes = NOW,
        is_foreign: bool = False,
    ) -> None:
        """Record what a pod is to its group, in place of what it was to any; once a latecomer it stays one."""
        previous = self._of.get(uid)
        if previous is not None and previous.key != membership.key:
            self.drop(uid)
        self._of[uid] = membership
        members = self._groups.get(membership.key)
        if members is None:
            members = self._groups[membership.key] = Members(membership.key, membership.title)
        if is_latecomer:
            self._latecomers.add(uid)
        is_latecomer, request = uid in self._latecomers, membership.asked
        members.put(
            uid, standing, request, is_latecomer=is_latecomer, start_min=start_min, times=times, is_foreign=is_foreign
        )

    def drop(self, uid: str) -> GroupKey | None:
        """Delete a pod; return the group that it was in."""
        membership = self._of.pop(uid, None)
        self._latecomers.discard(uid)
        if membership is None:
            return None
        members = self._groups[membership.key]
        members.drop(uid)
        if not members.standings:
            del self._groups[membership.key]
        return membership.key

    def uids(self, *standings: Standing) -> list[str]:
        return [uid for members in self._groups.values() for uid in members.of(*standings)]

    def check(self, is_assigned: Callable[[str], bool]) -> None:
        """Raise AssertionError unless the placed members are those that the cache has."""
        for members in self._groups.values():
            assert members.standings, f"group {members.key} is kept without a pod"
            assert members.counts == Counter(members.standings.values()), f"group {members.key} is miscounted"
            for uid, standing in members.standings.items():
                assert is_assigned(uid) == (standing in ("placed", "leaving")), f"{uid} is {standing} in {members.key}"
                assert self._of[uid].key == members.key
            members.check(self._latecomers)
        assert self._latecomers <= self._of.keys(), "pods are kept as latecomers that are in no group"
