"""The age of group members: a member is no older than the time at which it joined the group. Pure."""

from scheduler.cache.groups.groups_by_pod import Rank


class JoinTimes:
    """When members that had been received without the group joined it, by the API server's time."""

    def __init__(self) -> None:
        # The latest creation time of a received member: the API server's time, as far as it is visible here.
        self._latest = ""
        # By uid: the latest creation time when the member joined.
        self._join_times: dict[str, str] = {}

    def join(self, uid: str) -> None:
        """Let a member be no older than the latest received until now, until it is dropped."""
        self._join_times[uid] = self._latest

    def forget(self, uid: str) -> None:
        """Drop the join time of a deleted pod."""
        self._join_times.pop(uid, None)

    def rank(self, uid: str, own: Rank) -> Rank:
        """Return the rank of a member in its group; ``own`` is the pod's rank."""
        self._latest = max(self._latest, own[1])
        return own[0], max(own[1], self._join_times.get(uid, ""))
