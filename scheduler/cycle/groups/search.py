"""One decision about a group while it is under way, as data: what is tried, what was found, what is left. Pure."""

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from scheduler.cache.cache import AssignedPod
from scheduler.cache.groups.sources import Group
from scheduler.cache.node_columns import Rows
from scheduler.cycle.decisions import Bind, GroupUnschedulable, Unschedulable
from scheduler.cycle.groups.backtracking import Backtracking
from scheduler.cycle.groups.domains import Domain, Try
from scheduler.cycle.groups.members import alike, by_shape, needs_order
from scheduler.cycle.groups.rails import Networks, on_rails
from scheduler.cycle.groups.row_contents import RowContents
from scheduler.cycle.groups.slices import MEMBERS_A_TURN, VALUES_A_TURN, Slices
from scheduler.cycle.placement_budget import A_DECISION, PlacementBudget
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.place import SEARCHED_AT_ONCE

# A group has so many times the steps of a pod to search for VFs.
_STEPS = 8
# A node that has changed more often between two turns takes no member: one that always does would keep it for ever.
_MOST_CHANGES = 16
# Steps of the search beyond greedy order, in all domains together: some seconds at the most.
SEARCHED = 4_000
# How often a try begins again because rules about other pods read what has changed.
MOST_RESTARTS = 3
_EVERYWHERE = Try(Domain(), 1)
_NO_MORE = object()


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where members are tried, on which networks, in which order, and how many could be placed so at the most.

    ``is_search``: not one after another, but by the search beyond greedy order; ``is_last``: none comes after that.
    """

    trying: Try
    networks: Networks
    order: Sequence[PodInfo]
    most: int
    is_search: bool = False
    is_last: bool = False


# What there is to try, in order; None where so much was looked at that the turn may end.
Attempts = Iterator[Attempt | None]


@dataclass(slots=True)
class Enough:
    """The attempt that has placed the most members, enough of them, and where; off the cache while others are made.

    ``refusals`` are those of the other members. Others are made since so many members were ``tried``; meanwhile these
    nodes have ``changed``, and what rules about other pods read if it ``is_stale``.
    """

    attempt: Attempt
    binds: Sequence[Bind]
    refusals: dict[Hashable, Unschedulable]
    tried: int
    changed: set[str] = field(default_factory=set)
    is_stale: bool = False

    @property
    def count(self) -> int:
        """How many members it has placed."""
        return len(self.binds)

    def heed(self, changed: Set[str], *, concern_rules: bool) -> None:
        """Take in that nodes have changed."""
        self.changed |= changed
        self.is_stale |= concern_rules

    def stays(self, bind: Bind) -> bool:
        """Return whether a member can be put back where it was; volumes may be others' by now."""
        if self.is_stale:
            return False
        return bind.assigned.node not in self.changed if bind.plan is None else not self.changed


@dataclass(slots=True)
class GroupSearch:
    """One decision about a group, over its turns.

    ``waiting`` are its members in the order in which they are tried; ``needed`` of them must be placed. ``before`` are
    the members that are placed already. ``priority`` is the group's.
    """

    group: Group
    waiting: Sequence[PodInfo]
    needed: int
    priority: int
    portion: int = MEMBERS_A_TURN
    before: Sequence[AssignedPod] = ()
    todo: deque[PodInfo] = field(default_factory=deque)
    placed: dict[str, Bind] = field(default_factory=dict)
    # Members that were placed when the decision was set aside, and are off the cache since.
    aside: deque[Bind] = field(default_factory=deque)
    slices: Slices = field(init=False)
    refusals: dict[Hashable, Unschedulable] = field(default_factory=dict)
    # The members with their interfaces on the rails that are tried.
    members: Sequence[PodInfo] = ()
    # What is tried, what comes after it if that is known, and what comes later; without a list nothing is listed yet.
    attempt: Attempt = Attempt(_EVERYWHERE, (), (), 0)
    next: Attempt | None = None
    is_next_known: bool = False
    later: Attempts | None = None
    # The attempt of this try that has placed the most, where another one may place more.
    enough: Enough | None = None
    # The number of the first domain that is tried, of the one after what is tried now, and how many members were tried.
    first_domain: int = 0
    next_domain: int = 0
    tried: int = 0
    # The outcome of the try in which the most members fitted, and that try.
    best: GroupUnschedulable | None = None
    best_try: Try = _EVERYWHERE
    budget: PlacementBudget = field(
        default_factory=lambda: PlacementBudget(SEARCHED_AT_ONCE, _STEPS * A_DECISION, values=VALUES_A_TURN)
    )
    # The number of the event after which the decision began, or the first that tried a part of what there is to try.
    since: int = 0
    seen: int = -1
    # What the rows had left when the decision was set aside.
    left_as: RowContents | None = None
    renewed: int = 0
    # The pods that were nominated then, by node.
    kept: Mapping[str, frozenset[str]] = field(default_factory=dict)
    restarts: int = 0
    retries: int = 0
    # How often each node has changed between two turns.
    changes: Counter[str] = field(default_factory=Counter)
    uids: frozenset[str] = frozenset()
    # The node on which a member that is placed again was before, by uid, and whether all begins again if it is refused.
    own_nodes: dict[str, str] = field(default_factory=dict)
    is_bound_to_own: bool = False
    # Whether another decision may place more though nothing happens: what was placed could not be put back.
    comes_again: bool = False
    # Whether the search of this attempt is to begin; that search, and the steps that are left for all of them.
    is_to_begin: bool = False
    path: Backtracking | None = None
    steps: int = SEARCHED
    # What does not fit together on a node's PFs, as found so far.
    unfit: set[Hashable] = field(default_factory=set)
    # A member of each shape, and the rows that some of them pass: what a domain could hold is an estimate.
    shapes: list[PodInfo] = field(default_factory=list)
    judged: list[tuple[PodInfo, Rows]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shapes = by_shape(self.waiting)
        self.slices = Slices(self.portion, self.budget)
        self.uids = frozenset(one.uid for one in self.waiting)

    def has(self, uid: str) -> bool:
        """Return whether a pod is one of the members that are decided about."""
        return uid in self.uids

    @property
    def trying(self) -> Try:
        """The domain that is tried, and how many members must be placed there."""
        return self.attempt.trying

    @property
    def wanted(self) -> int:
        """How many members an attempt must place to be better than those before it."""
        return self.trying.wanted if self.enough is None else self.enough.count + 1

    def begin_next(self) -> None:
        """Let the next attempt be the one that is made."""
        assert self.next is not None, "a group is tried somewhere"
        self.next_domain += self.next.trying is not self.trying
        self.attempt, self.next, self.is_next_known = self.next, None, False
        self.own_nodes, self.is_bound_to_own = {}, False

    def look_ahead(self) -> bool:
        """Find out what the next attempt is, None if nothing is left; return False if the turn ends before."""
        assert self.later is not None, "what there is to try is listed first"
        while not self.is_next_known:
            if self.slices.turn_is_over:
                return False
            found = next(self.later, _NO_MORE)
            self.is_next_known = found is not None
            self.next = found if isinstance(found, Attempt) else None
        return True

    def pass_over(self, count: int) -> bool | None:
        """Pass over the attempts of this try that could place no more than so many; return whether one is left.

        None if the turn ends before.
        """
        while self.look_ahead():
            if self.next is None or self.next.trying is not self.trying:
                return False
            if self.next.most > count:
                return True
            self.next, self.is_next_known = None, False
        return None

    def search_again(self) -> None:
        """Let the same search be the next one: for one member more."""
        assert self.later is not None, "what there is to try is listed first"
        self.later = chain(() if self.next is None else (self.next,), self.later)
        self.next, self.is_next_known = self.attempt, True

    def go_back(self, enough: Enough) -> None:
        """Let the members be put back that an attempt has placed; those that cannot be are placed again.

        Each is tried on its own node first: one after another they may not find what a search has found.
        """
        if not all(map(enough.stays, enough.binds)) and any(map(needs_order, self.waiting)):
            # The others may be where they are because of those that go.
            enough.is_stale = True
        self.attempt = replace(enough.attempt, is_search=False, most=enough.count)
        self.members = on_rails(self.attempt.order, self.group, self.attempt.networks)
        self.aside = deque(bind for bind in enough.binds if enough.stays(bind))
        stays = {bind.pod_info.uid for bind in self.aside}
        again = [bind.pod_info for bind in enough.binds]
        if enough.is_stale:
            there = {one.uid for one in again}
            again += (one for one in self.members if one.uid not in there)
        self.todo = deque(one for one in again if one.uid not in stays)
        self.own_nodes = {bind.pod_info.uid: bind.assigned.node for bind in enough.binds}
        self.is_bound_to_own = False
        self.refusals = {} if enough.is_stale else enough.refusals
        # Where too few fit by then, something has changed that may go on doing so.
        self.comes_again, self.enough = True, None

    @property
    def has_begun(self) -> bool:
        """Whether anything was tried."""
        return self.seen >= 0

    @property
    def unsteady(self) -> list[str]:
        """The nodes that change too often for a decision that takes so long."""
        return [name for name, count in self.changes.items() if count > _MOST_CHANGES]

    @property
    def about(self) -> object:
        """What is decided about: equal for another decision about the same group and members."""
        return self.group, self.needed, self.priority, {one.uid: alike(one) for one in self.waiting}

    def check(self) -> None:
        """Raise AssertionError if the members on the path of the search are not those that are placed or set aside."""
        aside = {bind.pod_info.uid for bind in self.aside}
        assert not aside & self.placed.keys(), "a member is placed or set aside"
        if self.path is not None:
            assert aside | self.placed.keys() == self.path.placed, "the path has the members that are placed"
