"""What a change of the cluster can help with: the events that the queue wakes parked pods by. Pure."""

from scheduler.cache.cache import Difference, Seat
from scheduler.cache.node_info import NodeFacts
from scheduler.queue import NOTHING, Happening


def of_node(known: NodeFacts | None, facts: NodeFacts) -> Happening:
    """Return what about a node is new to the rules; a heartbeat is nothing."""
    if known is None:
        return Happening.NODE_ADDED
    changed = NOTHING
    for happening, before, after in (
        (Happening.NODE_LABELS, known.labels, facts.labels),
        (Happening.NODE_TAINTS, (known.taints, known.unschedulable), (facts.taints, facts.unschedulable)),
        (Happening.NODE_ALLOCATABLE, known.allocatable, facts.allocatable),
        (Happening.NODE_INVENTORY, _offer(known), _offer(facts)),
        (Happening.NODE_UNITS, known.others, facts.others),
    ):
        changed |= happening if before != after else NOTHING
    return changed


def _offer(facts: NodeFacts) -> tuple[object, ...]:
    # The versions of a node's programs are in its inventory too, and no rule reads them.
    pfs = facts.inventory.pfs if facts.inventory else ()
    return pfs, facts.fault, facts.unready_since is None


def of_seat(known: Seat | None, seat: Seat, new: Difference) -> Happening:
    """Return what about a bound pod is new to the rules; for our own bind, or a change of its status, nobody waits."""
    if known is None:
        return Happening.POD_SEATED
    if not new:
        return NOTHING
    if new == "kin" and not _ends(known, seat):
        return Happening.POD_LABELS
    return of_leaving(known) | Happening.POD_LABELS | Happening.POD_SEATED


def _ends(known: Seat, seat: Seat) -> bool:
    """Say whether a pod terminates that did not: it no longer counts for spreading."""
    return seat.kin is not None and seat.kin.terminating and not (known.kin is not None and known.kin.terminating)


def of_leaving(seat: Seat) -> Happening:
    """Return what a pod sets free that has left its node."""
    freed, assignment = Happening.POD_GONE, seat.assignment
    freed |= Happening.PORTS_FREED if seat.ports else NOTHING
    freed |= Happening.VOLUMES_FREED if seat.volumes else NOTHING
    freed |= Happening.VFS_FREED if assignment is not None and assignment.vfs else NOTHING
    return freed | (Happening.UNITS_FREED if assignment is not None and assignment.ext else NOTHING)
