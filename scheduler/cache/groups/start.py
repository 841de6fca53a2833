"""Whether a group has started, and for whose pods: recreated pods then join the others one by one. Pure.

Method: a group has started once at least ``min`` members were bound, for the owners (controllers) that had members
then. It is alive while a member of these owners has a node, or one has succeeded. After that it starts again as a
whole. Members of another owner, such as those of a job that is run again under the same name, start together
themselves.

Correctness: everything is derived from the pods and Jobs of the API server, so a scheduler that starts gets the same
result as one that has received all events. Ended pods were placed together with live ones if they were bound no earlier
than the oldest live one was created; pods of an earlier, failed attempt were not. Both times are the API server's. If
too many of these pods are deleted, the group counts as one whose start was interrupted.
"""

from collections.abc import Iterable, Set
from typing import Literal, NamedTuple

from mooring.annotations.group import GroupRequest
from scheduler.kube.objects import Pod, unix_time

# waiting: can be scheduled. refused: a pod of this scheduler whose request cannot be read or is not supported. gated:
# has scheduling gates. foreign: waits for another scheduler. placed: assumed or bound. leaving: placed, and being
# deleted. failed: it had a node.
Standing = Literal["waiting", "refused", "gated", "foreign", "placed", "leaving", "succeeded", "failed"]
# A pod's priority, and the RFC 3339 time of its creation.
Rank = tuple[int, str]


class NodeTimes(NamedTuple):
    """When a pod with a node was created and bound, in UNIX seconds."""

    created: float
    bound: float


def node_times(pod: Pod) -> NodeTimes | None:
    """Return when a pod was created and bound by the API server's clock; None for a pod without a node."""
    if not pod.spec.node_name:
        return None
    created = unix_time(pod.metadata.creation_timestamp, 0.0)
    scheduled = pod.condition("PodScheduled")
    is_shown = scheduled is not None and scheduled.status == "True"
    return NodeTimes(created, unix_time(scheduled.last_transition_time, created) if scheduled and is_shown else created)


class MemberState(NamedTuple):
    """A pod's state in its group; ``times`` is when it was created and bound, None while it is not bound.

    ``is_latecomer``: it already had a node when it joined the group, or it names another scheduler. ``owner`` is the
    uid of its controller, and ``request`` its annotation, if that counts for the group. ``rank`` is that of a waiting
    member.
    """

    standing: Standing
    times: NodeTimes | None = None
    is_latecomer: bool = False
    owner: str = ""
    role: str = ""
    request: GroupRequest | None = None
    rank: Rank | None = None

    @property
    def bound(self) -> NodeTimes | None:
        """Return the times of a pod that was bound as a member; None for any other pod."""
        return None if self.is_latecomer else self.times


def placed_together(states: Iterable[MemberState], owners: Set[str]) -> list[MemberState]:
    """Return the pods that were placed together with the live ones of these owners, of which there is at least one:
    all live ones, the succeeded ones of these owners, and those that were bound later.
    """
    bound = [(state, state.bound) for state in states if state.bound is not None]
    since = min(times.created for state, times in bound if state.standing == "placed" and state.owner in owners)
    return [
        state
        for state, times in bound
        if state.standing == "placed"
        or times.bound >= since
        or (state.standing == "succeeded" and state.owner in owners)
    ]
