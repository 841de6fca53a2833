"""How long a decision about a group goes on before others are decided about. Pure.

A group is tried in many topology domains, member by member: two pods that keep away from each other held up all other
decisions for 42 s at 5,000 nodes. What a decision does is counted, not timed, so that equal clusters give equal
decisions. A member that is tried costs a look at each node for each rule about other pods, and the search for its VFs
costs steps. So does what is judged for the first time of nodes that differ from all others. A turn ends, so that events
are taken in; a slice ends, so that others have their turn, if any wait.
"""

from scheduler.kube.pod_info import PodInfo
from scheduler.placement.steps import Steps

# What a member costs before any node is looked at, in looks at a node; and how many looks a step of a search is.
_A_MEMBER, _A_STEP = 1_000, 8
# And what a shape of members costs that all nodes are judged by, a column of a label that each node has a value of, and
# a look at what nodes have left on their networks.
_A_SHAPE, _A_COLUMN, _NETWORKS = 4, 10, 20
# And what a dry run of one costs on a node, where victims are searched for.
_A_DRY_RUN = 700
# And what a value costs that is judged for the first time, as the PFs of a node are by a request.
_A_VALUE = 100
# Members that one turn tries at the most; a machine with smaller portions has smaller slices too.
MEMBERS_A_TURN = 16
# Some 15 ms.
A_TURN = 100_000
VALUES_A_TURN = A_TURN // _A_VALUE
# Before a slice has ended so much must be done. The first is short: many groups may come at once, and most take less.
FIRST_SLICE, LATER_SLICE = 2 * A_TURN, 8 * A_TURN
# Members taken off or put back cost far less than those that are searched for.
PUT_BACK = 512


class Slices:
    """What is done of one decision, in looks at a node."""

    def __init__(self, portion: int, steps: Steps) -> None:
        self._of_turn = self._of_slice = 0
        self._steps, self._judged = steps, steps.judged
        self._most = LATER_SLICE if portion >= MEMBERS_A_TURN else portion * _A_MEMBER
        self._slice = min(FIRST_SLICE, self._most)

    def begin_turn(self) -> None:
        self._of_turn, self._judged = 0, self._steps.judged

    def begin_slice(self) -> None:
        """Begin another slice than the first."""
        self._of_slice, self._slice = 0, self._most

    def count(self, member: PodInfo, nodes: int, steps: int) -> None:
        """Count a member that was tried on so many nodes, and the steps of the search for its VFs."""
        affinity_info = member.affinity_info
        terms = (affinity_info.required_affinity, affinity_info.required_anti_affinity, affinity_info.preferred)
        self._add(_A_MEMBER + nodes * (1 + len(member.spread) + sum(map(len, terms))) + _A_STEP * steps)

    def count_dry_runs(self, count: int) -> None:
        """Count dry runs of a search for victims, and what takes as long."""
        self._add(_A_DRY_RUN * count)

    def count_shape(self, nodes: int) -> None:
        """Count that all nodes were judged by one of the members' shapes."""
        self._add(_A_SHAPE * (_A_MEMBER + nodes))

    def count_column(self, nodes: int) -> None:
        """Count that a label of all nodes was made a column."""
        self._add(_A_COLUMN * (_A_MEMBER + nodes))

    def count_networks(self, nodes: int) -> None:
        """Count that it was looked at what so many nodes have left on their networks."""
        self._add(_NETWORKS * (_A_MEMBER + nodes))

    def _add(self, looks: int) -> None:
        self._of_turn += looks
        self._of_slice += looks

    def _count_judged(self) -> None:
        before, self._judged = self._judged, self._steps.judged
        self._add(_A_VALUE * (self._judged - before))

    @property
    def turn_is_over(self) -> bool:
        self._count_judged()
        return self._of_turn >= A_TURN

    @property
    def slice_is_over(self) -> bool:
        self._count_judged()
        return self._of_slice >= self._slice
