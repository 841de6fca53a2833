"""How old members of groups count as: no older than their coming to the group. Pure."""

from scheduler.cache.groups.groups_by_pod import Rank


class JoinTimes:
    """When members came to their group that were seen elsewhere before, by the API server's time."""

    def __init__(self) -> None:
        # The latest creation of a member that has been seen: the API server's time, as far as it is visible here.
        self._latest = ""
        # By uid: the latest creation when the member came.
        self._join_times: dict[str, str] = {}

    def join(self, uid: str) -> None:
        """Let a member be no older than the latest that was seen until now, until it is forgotten."""
        self._join_times[uid] = self._latest

    def forget(self, uid: str) -> None:
        """Forget when a pod that is gone has come."""
        self._join_times.pop(uid, None)

    def rank(self, uid: str, own: Rank) -> Rank:
        """Return the rank of a member in its group; ``own`` is the pod's."""
        self._latest = max(self._latest, own[1])
        return own[0], max(own[1], self._join_times.get(uid, ""))
