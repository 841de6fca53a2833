"""Search for a place for a group of unequal members beyond greedy order: depth first, with backtracking. Pure.

What it is: the largest member goes to its best node, the next one to its best node beside it, and so on. If one fits
nowhere, the one before it is taken off, and goes to the next node that it has not been to. A placement is found
whenever one exists, if the steps last: each step places a member or finds that it fits nowhere.

Why it is right: a node is crossed off for a member only after all placements with the member there have failed. It is
then crossed off, too, for the next member if that one is equal: the two could be exchanged. And so are the nodes that
have as much left and on which the same members pass. A branch is cut if what the members still need is more than all
nodes have left that could take any of them. Where the members' VFs lie on a node's PFs does not depend on the order in
which they came: if one more does not fit beside those of its group, all of them are placed on the PFs together
(`GroupPacking.fit`), those of preferred spreading included.

Where a member may be depends on where others are already if they spread by a label, or one keeps to another. If they
are not many, each kind of members is tried in each place on the path then, and it is remembered from where nothing
could come.

Where all members must fit on few nodes, a plan by sums is looked for first (`node_filling`): it says where each member
is tried first. A plan that does not hold only costs steps.

What it costs: a step costs what a decision about a pod costs. Where nodes change meanwhile, the members on them and
those after them are taken off; the nodes that are crossed off stay so, which may miss a placement and never makes one.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.column import Amounts
from scheduler.cache.node_columns import Flags, NodeColumns
from scheduler.cycle.cycle import RecordPhase
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.members import alike, by_size, distinct, is_spread, needs, needs_order
from scheduler.cycle.groups.node_filling import Counts, EqualMembers, FillableNode, NodeFilling
from scheduler.cycle.groups.packing import GroupPacking
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.refusals import Among
from scheduler.kube.pod_info import PodInfo

# Kinds of members of which it is known on which rows they pass.
_MOST_KINDS = 60
# Rows that are compared with one that is crossed off.
_MOST_COMPARED = 1024
# Members that are tried in other orders: where they are is looked at in each step.
_MOST_ORDERED = 64
# Nodes for which a plan is looked for: a group that must fill more of them to the last is rare.
_MOST_PLANNED = 64


@dataclass(slots=True)
class Backtracking:
    """One search in one domain: the path from the first member to the present one.

    ``order`` are the members, of which ``wanted`` must be placed; ``inside`` marks the domain's rows. ``has_twins``
    says that rows with as much left are equal for all members.
    """

    order: list[PodInfo]
    wanted: int
    inside: Flags
    steps: int
    has_twins: bool
    # For each row the members that pass it, as bits by their kinds, while none is placed.
    shapes: Sequence[int]
    # For each member on the path the rows that are not crossed off; the last one's member is not placed.
    open: list[Flags] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)
    # Where the order of unequal members counts: for each member on the path the kinds that were tried in its place, and
    # where members were placed when all that could come then had failed.
    is_ordered: bool = False
    tried: list[set[Hashable]] = field(default_factory=list)
    failed: set[Hashable] = field(default_factory=set)
    filling: NodeFilling | None = None
    # The row on which each member is tried first, by its uid.
    planned: dict[str, int] = field(default_factory=dict)
    needs: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.needs = np.array([needs(one) for one in self.order], np.int64)
        self.open.append(self.inside.copy())

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to try, or no steps are."""
        return not self.open or self.steps <= 0

    @property
    def member(self) -> PodInfo:
        """Return the member that is tried next."""
        return self.order[len(self.open) - 1]

    def first_rows(self) -> Flags:
        """Return the rows for the next member: the planned one alone, or all that are not crossed off."""
        rows = self.open[-1]
        planned = self.planned.get(self.member.uid, -1)
        if planned < 0 or not rows[planned]:
            return rows
        only: Flags = np.zeros(len(rows), np.bool_)
        only[planned] = True
        return only

    @property
    def placed(self) -> Set[str]:
        """Return the uids of the members on the path that are not left out."""
        return {one.uid for one in self.order[: max(len(self.open) - 1, 0)]} - self.left_out

    def rest(self) -> list[PodInfo]:
        """Return the members that are not placed."""
        return [*(one for one in self.order if one.uid in self.left_out), *self.order[len(self.open) - 1 :]]

    def may_leave_out(self) -> bool:
        return len(self.left_out) < len(self.order) - self.wanted

    def advance(self) -> None:
        """Go on with the next member, if there is one: the present one is placed or left out."""
        number = len(self.open)
        if number < len(self.order):
            last, member = self.order[number - 1], self.order[number]
            equal = alike(last) == alike(member) and not is_spread(member)
            self.open.append((self.open[-1] if equal and not self.is_ordered else self.inside).copy())
        else:
            # Nobody is left: whoever comes back from here has tried everything.
            self.open.append(np.zeros(0, np.bool_))

    def try_another_kind(self) -> bool:
        """Let a member of another kind come before the present one, if there is one that was not tried here."""
        number = len(self.open) - 1
        del self.tried[number + 1 :]
        while len(self.tried) <= number:
            self.tried.append(set())
        tried = self.tried[number]
        tried.add(alike(self.order[number]))
        for other in range(number + 1, len(self.order)):
            if alike(self.order[other]) not in tried:
                self.order.insert(number, self.order.pop(other))
                self.needs = np.array([needs(one) for one in self.order], np.int64)
                self.open[number] = self.inside.copy()
                return True
        return False

    def leave_out(self) -> None:
        self.left_out.add(self.member.uid)
        self.advance()

    def back(self) -> PodInfo | None:
        """Go back to the last member that is placed, and return it: it has to be taken off. None if there is none."""
        self.planned.clear()
        while self.open:
            self.open.pop()
            del self.tried[len(self.open) :]
            if not self.open:
                return None
            member = self.member
            if member.uid not in self.left_out:
                return member
            self.left_out.discard(member.uid)
        return None

    def cross_off(self, row: int, cache: Cache, shape_of: Callable[[int], Hashable]) -> None:
        """Record that the present member can be on this row in no placement; rows of one shape have one answer."""
        flags = self.open[-1]
        flags[row] = False
        for other in _twins(row, flags, cache, shape_of) if self.has_twins else ():
            flags[other] = False

    def shorten(self, placed: Set[str], inside: Flags) -> list[PodInfo]:
        """Cut the path at the first member that is not placed any more; return the members behind it."""
        self.failed.clear()
        self.filling, path = None, self.order[: len(self.open) - 1]
        self.planned.clear()
        keep = next((number for number, one in enumerate(path) if one.uid not in placed | self.left_out), len(path))
        if len(inside) != len(self.inside):
            self.open, keep = [inside.copy()], 0
        self.inside, self.has_twins = inside, False
        del self.open[keep + 1 :]
        # Behind the last member nothing is open.
        self.open = [rows & inside if len(rows) else rows for rows in self.open]
        self.left_out -= {one.uid for one in path[keep:]}
        return list(path[keep:])

    def could_hold(self, cache: Cache) -> bool:
        """Return whether the nodes have as much left as the members on the way need at least, by sums."""
        number = len(self.open) - 1
        coming = self.needs[number:]
        count = self.wanted - (number - len(self.left_out))
        if count <= 0:
            return True
        if count > len(coming):
            return False
        least = np.sort(coming, axis=0)[:count].sum(axis=0)
        left = np.maximum(cache.nodes.view(np.flatnonzero(self.inside)).left, 0)
        usable = (left >= coming.min(axis=0)[:, None]).all(axis=0)
        return bool((left[:, usable].sum(axis=1) >= least).all())


def begin(
    members: Sequence[PodInfo], wanted: int, inside: Flags, steps: int, packing: GroupPacking, budget: PlacementBudget
) -> Backtracking:
    """Begin to search places for at least ``wanted`` of the members on the rows marked; none of them is placed."""
    order = by_size(members)
    kinds = list(distinct(order))
    has_twins = not any(one.volumes or one.ports or one.wishes or packing.reads_others(one) for one in order)
    shapes = np.zeros(len(inside), np.int64)
    for number, one in enumerate(kinds):
        has_twins &= number < _MOST_KINDS
        if not has_twins:
            break
        shapes[packing.cycle.passing(one, budget)] |= 1 << number
    path = Backtracking(order, wanted, inside, steps, has_twins, shapes.tolist())
    path.is_ordered = len(kinds) > 1 and len(order) <= _MOST_ORDERED and any(map(needs_order, order))
    if has_twins and wanted == len(order):
        path.filling = _filling(path, kinds, packing, budget)
    return path


def _filling(
    path: Backtracking, kinds: Sequence[PodInfo], packing: GroupPacking, budget: PlacementBudget
) -> NodeFilling | None:
    """Begin to look for a plan by sums; None where there are too many nodes for one."""
    rows = _planned_rows(path)
    if not 0 < len(rows) <= _MOST_PLANNED:
        return None
    nodes, of_kind = packing.cache.nodes, Counter(map(alike, path.order))
    left = np.maximum(nodes.view(np.array(rows, np.intp)).left, 0).T.tolist()
    pfs = [(free_vfs.capacities, free_vfs.pfs) for free_vfs in map(nodes.free_vfs_of_row.__getitem__, rows)]
    fillable = [FillableNode(has, path.shapes[row], shape) for row, has, shape in zip(rows, left, pfs, strict=True)]

    def fits(number: int, counts: Counts) -> bool:
        members = [one for one, count in zip(kinds, counts, strict=True) for _ in range(count)]
        return packing.fit_together(rows[number], members, budget)

    return NodeFilling([EqualMembers(needs(one), of_kind[alike(one)]) for one in kinds], fillable, fits)


def _planned_rows(path: Backtracking) -> list[int]:
    """Return the rows on which any member may be."""
    return [row for row in np.flatnonzero(path.inside).tolist() if path.shapes[row]]


def _follow(path: Backtracking, filling: NodeFilling) -> None:
    """Go on looking for a plan; take it over once it is found."""
    filling.advance()
    path.steps -= 1
    if not filling.is_over:
        return
    path.filling = None
    if filling.found is None:
        return
    waiting: dict[Hashable, list[PodInfo]] = {}
    for one in path.order:
        waiting.setdefault(alike(one), []).append(one)
    kinds = list(waiting.values())
    for row, counts in zip(_planned_rows(path), filling.found, strict=True):
        for members, count in zip(kinds, counts, strict=True):
            path.planned |= {members.pop().uid: row for _ in range(count)}


def rows_of(among: Flags | None, nodes: NodeColumns) -> Flags:
    """Return the rows marked, all that have a node for None."""
    return nodes.valid[: nodes.size].copy() if among is None else among


def take_step(
    path: Backtracking,
    packing: GroupPacking,
    placed: dict[str, Bind],
    budget: PlacementBudget,
    now: float,
    record_phase: RecordPhase,
) -> None:
    """Place a member, leave it out, or go back; raise TurnSpent, with nothing changed, where another turn goes on."""
    if path.filling is not None:
        _follow(path, path.filling)
        return
    has_failed = path.is_ordered and _state(path, packing.cache, placed) in path.failed
    if has_failed or not path.could_hold(packing.cache):
        path.steps -= 1
        _go_back(path, packing, placed)
        return
    member, rows = path.member, path.first_rows()
    found = packing.cycle.place(member, now, budget, Among(rows), record_phase)
    fits = isinstance(found, Bind) or packing.fit(member, placed.values(), rows, budget)
    path.steps -= 1
    if isinstance(found, Bind):
        packing.put_on(found)
    if fits:
        path.advance()
    elif path.planned:
        # The plan does not hold.
        path.planned.clear()
    elif path.is_ordered and path.try_another_kind():
        pass
    elif path.may_leave_out():
        path.leave_out()
    else:
        _go_back(path, packing, placed)


def _go_back(path: Backtracking, packing: GroupPacking, placed: dict[str, Bind]) -> None:
    if path.is_ordered:
        path.failed.add(_state(path, packing.cache, placed))
    last = path.back()
    if last is None:
        return
    if path.is_ordered:
        # Those that were left out behind it could not be placed either.
        path.failed.add(_state(path, packing.cache, placed))
    bind = placed.pop(last.uid)
    packing.take_off(bind)
    row_of = packing.cache.nodes.row_of
    held: dict[int, list[Hashable]] = {}
    for one in placed.values():
        held.setdefault(row_of[one.assigned.node], []).append(alike(one.pod_info))

    def shape_of(row: int) -> Hashable:
        return path.shapes[row], frozenset(Counter(held.get(row, ())).items())

    path.cross_off(row_of[bind.assigned.node], packing.cache, shape_of)


def _state(path: Backtracking, cache: Cache, placed: Mapping[str, Bind]) -> Hashable:
    """Return what decides what can come: where members of each kind are, with which PFs left, and who is left out."""
    row_of, free_vfs = cache.nodes.row_of, cache.nodes.free_vfs_of_row
    where = Counter((alike(one.pod_info), row_of[one.assigned.node]) for one in placed.values())
    left_out = Counter(alike(one) for one in path.order if one.uid in path.left_out)
    left = frozenset((row, free_vfs[row].capacities) for _, row in where)
    return frozenset(where.items()), frozenset(left_out.items()), left


def _twins(row: int, flags: Flags, cache: Cache, shape_of: Callable[[int], Hashable]) -> list[int]:
    """Return the other rows marked that are as this one: what is left, on each PF too, and what passes there."""
    nodes = cache.nodes
    rows = np.flatnonzero(flags)[:_MOST_COMPARED]
    left = nodes.view(rows).left
    same = rows[(left == nodes.view(np.array([row], np.intp)).left).all(axis=0)]
    own, shape = nodes.free_vfs_of_row[row], shape_of(row)
    return [
        other
        for other in same.tolist()
        if shape_of(other) == shape
        and (there := nodes.free_vfs_of_row[other]).capacities == own.capacities
        and there.pfs == own.pfs
    ]
