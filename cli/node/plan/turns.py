"""The turns in which a fleet's nodes are installed: one node first, then several at a time; a failure stops the rest.

All nodes share one document, in an annotation of a Lease, and change it by compare-and-swap:

    {"v":1,"proven":"install mooring-0.2.0-1f…","turns":[{"node":"n1","target":"install mooring-0.2.0-1f…","beats":3},
      {"node":"n2","target":…,"beats":1,"failure":"the kubelet has not called the shim"}]}

A node that works has a turn, and counts up ``beats`` while it does. A node that failed keeps its turn, with the
reason, until it is installed; one whose pods forbid the change gives its turn back. A turn never expires: a node that
went down during its turn may have gone down because of it. So the number of turns never exceeds the limit, whatever the
clocks show. While a turn has a failure, or its node is silent, no other node begins, unless that node has left the
fleet: then the others end its turn.

``proven`` is what was installed successfully last. Until one node has succeeded with a target, the limit is one turn.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from mooring.errors import AnnotationError
from mooring.parsing import Value, dump, parse

KEY = "mooring.dev/turns"
MOST_AT_ONCE = 100
# Seconds without a beat after which a node counts as silent; a working node beats every `BEAT_S`.
SILENT_S = 90.0
BEAT_S = 20.0
_LONGEST_NAME, _LONGEST_TARGET, _LONGEST_FAILURE, _MOST_BEATS = 253, 256, 512, 1 << 53


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a node that works, or that failed (``failure``)."""

    node: str
    target: str
    beats: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a fleet, and the target that a node has reached last."""

    proven: str = ""
    turns: Sequence[Turn] = ()

    def of(self, node: str) -> Turn | None:
        return next((turn for turn in self.turns if turn.node == node), None)


@dataclass(frozen=True, slots=True)
class Postponement:
    """Why a node cannot begin now; ``blocker`` is the node that failed or is silent, empty if none is."""

    reason: str
    blocker: str = ""


def read_turns(text: str | None) -> Turns:
    """Read the annotation, None without one; raise AnnotationError."""
    if text is None:
        return Turns()
    document = parse(text, KEY, AnnotationError).version(1).fields()
    turns = tuple(map(_turn, document.required("turns").items(2 * MOST_AT_ONCE)))
    return Turns(document.required("proven").string(_LONGEST_TARGET), turns)


def _turn(value: Value) -> Turn:
    fields = value.fields()
    node, target = fields.required("node").string(_LONGEST_NAME), fields.required("target").string(_LONGEST_TARGET)
    beats = fields.required("beats").integer(0, _MOST_BEATS)
    return Turn(node, target, beats, fields.optional("failure", lambda value: value.string(_LONGEST_FAILURE)) or "")


def dump_turns(turns: Turns) -> str:
    listed = [
        {"node": turn.node, "target": turn.target, "beats": turn.beats}
        | ({"failure": turn.failure[:_LONGEST_FAILURE]} if turn.failure else {})
        for turn in turns.turns
    ]
    return dump({"v": 1, "proven": turns.proven, "turns": listed})


def begin(turns: Turns, node: str, target: str, at_once: int, silent: Set[str]) -> Turns | Postponement:
    """Give a node a turn, or return why it has to wait. A node that has one continues it, whatever the others do.

    ``silent`` are the nodes without a beat. The reasons do not change while a node waits: each change is reported.
    """
    if (own := turns.of(node)) is not None:
        return _with(turns, replace(own, target=target, beats=own.beats + 1))
    if (failed := next((turn for turn in turns.turns if turn.failure), None)) is not None:
        return Postponement(f"node {failed.node!r} failed: {failed.failure}", failed.node)
    if (lost := next((turn for turn in turns.turns if turn.node in silent), None)) is not None:
        return Postponement(f"node {lost.node!r} has begun: waits for a sign that it works", lost.node)
    limit = at_once if turns.proven == target else 1
    if len(turns.turns) >= limit:
        return Postponement("waits for its turn" if limit > 1 else "waits until the first node is done")
    return replace(turns, turns=(*turns.turns, Turn(node, target)))


def beat(turns: Turns, node: str) -> Turns:
    """Record that a node still works."""
    own = turns.of(node)
    return turns if own is None else _with(turns, replace(own, beats=own.beats + 1))


def succeed(turns: Turns, node: str) -> Turns:
    """End a node's turn; its target is proven now."""
    own = turns.of(node)
    if own is None:
        return turns
    return replace(give_back(turns, node), proven=own.target)


def give_back(turns: Turns, node: str) -> Turns:
    """End the turn of a node that cannot be changed now; nothing is proven."""
    return replace(turns, turns=tuple(turn for turn in turns.turns if turn.node != node))


def fail(turns: Turns, node: str, failure: str) -> Turns:
    """Record a node's failure in its turn."""
    own = turns.of(node)
    return turns if own is None else _with(turns, replace(own, failure=failure[:_LONGEST_FAILURE]))


def _with(turns: Turns, changed: Turn) -> Turns:
    return replace(turns, turns=tuple(changed if turn.node == changed.node else turn for turn in turns.turns))


class SilenceClock:
    """Measures how long each turn has not changed, by the clock of one observer.

    A turn that is there at the first look counts as silent until it changes: its node may have gone down long ago. One
    that appears later has begun since the last look.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Turn, float]] | None = None

    def silent(self, turns: Turns, now_s: float) -> Set[str]:
        """Take in the turns as they are now; return the silent nodes."""
        first, seen = self._seen is None, self._seen or {}
        since = float("-inf") if first else now_s
        self._seen = {
            turn.node: known if (known := seen.get(turn.node)) is not None and known[0] == turn else (turn, since)
            for turn in turns.turns
        }
        return {node for node, (_, since) in self._seen.items() if now_s - since > SILENT_S}
