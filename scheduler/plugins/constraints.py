"""Constraints: a node must have what a pod asks for of each other kind, as the kind's constraint judges it.

The constraint is asked once for each distinct state of what nodes have left; whether everything fits together on one
node, VFs included, is the work of `scheduler.placement.joint`, asked for one node when that node is about to be
chosen.
"""

from collections.abc import Callable

from scheduler.cache.node_columns import Nodes
from scheduler.cache.node_view import Look, Measure
from scheduler.cache.unit_pools import Shelf
from scheduler.constraints.kinds import Wish
from scheduler.kube.pod_info import Task
from scheduler.placement.assign import Chosen
from scheduler.placement.joint import OfKind, OfVfs, Step, place_together
from scheduler.plugins.interface import UseFilter, UsePreference, UseRule, UseScorer
from scheduler.queue import Happening

_NAME = "Constraints"
# Reasons of one constraint that are told apart for pods of one shape; what comes after them is told as one.
_MOST_REASONS = 256


class _Reasons:
    """The reasons against nodes, numbered from 1 as they are met."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}

    def mark(self, text: str, kind: str) -> int:
        if len(self._marks) >= _MOST_REASONS:
            text = f"constraint {kind!r} refused the node(s)"
        return self._marks.setdefault(text, len(self._marks) + 1)

    def tell(self, mark: int) -> tuple[str, ...]:
        return (list(self._marks)[mark - 1],)


def prepare(task: Task, nodes: Nodes) -> UseFilter | None:
    if not task.wishes:
        return None
    reasons = _Reasons()
    judges = [(nodes.shelves[wish.kind.name], _refusing(wish, reasons)) for wish in task.wishes]

    def refuse(look: Look) -> Measure:
        found: Measure = 0
        for column, judge in judges:
            # The first kind that refuses a node has the word.
            found = found + (found == 0) * look.judged(column, judge)
        return found

    return UseFilter(refuse, reasons.tell)


def suit(task: Task, nodes: Nodes) -> UseScorer | None:
    """Prefer the nodes that the constraints prefer: the mean of what they say."""
    if not task.wishes:
        return None
    judges = [(nodes.shelves[wish.kind.name], _scoring(wish)) for wish in task.wishes]
    return lambda look: sum(look.judged(column, judge) for column, judge in judges) // len(judges)


def exact(task: Task, nodes: Nodes, row: int) -> Chosen | str:
    """Find where all that a pod asks for goes on a row, or the reason why it does not fit there."""
    steps: list[Step] = [OfKind(wish, nodes.shelves[wish.kind.name][row].left) for wish in task.wishes]
    supply = nodes.supplies[row]
    if task.request is not None and task.interfaces:
        steps.append(OfVfs(task.request, supply))
    return place_together(steps, supply)


def _judge(wish: Wish, shelf: Shelf) -> int | str:
    return shelf.fault or wish.kind.judge(wish.request, shelf.left)


def _refusing(wish: Wish, reasons: _Reasons) -> Callable[[Shelf], int]:
    def mark(shelf: Shelf) -> int:
        judged = _judge(wish, shelf)
        return reasons.mark(judged, wish.kind.name) if isinstance(judged, str) else 0

    return mark


def _scoring(wish: Wish) -> Callable[[Shelf], int]:
    def score(shelf: Shelf) -> int:
        judged = _judge(wish, shelf)
        return 0 if isinstance(judged, str) else judged

    return score


RULE = UseRule(
    _NAME,
    prepare,
    Happening.NODE_ADDED
    | Happening.NODE_INVENTORY
    | Happening.NODE_UNITS
    | Happening.VFS_FREED
    | Happening.UNITS_FREED,
)
PREFERENCE = UsePreference(_NAME, 2, suit)
