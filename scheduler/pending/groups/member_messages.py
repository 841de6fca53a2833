"""Messages for members of groups, sent in portions because a group may have any number of members. Pure."""

from collections.abc import Iterator, Sequence
from itertools import islice

from scheduler.cache.groups.group_members import Members
from scheduler.cycle.decisions import Why
from scheduler.kube.group_membership import GroupKey
from scheduler.pending.groups.conditions import PodGroupConditions

# Number of messages per call: a few milliseconds.
AT_ONCE = 256

_HINT = (
    "a StatefulSet needs podManagementPolicy Parallel, and a launcher that waits for its workers must not count in min"
)


class MemberMessages:
    """The last message for each group, and the members that have not received it yet."""

    def __init__(self, conditions: PodGroupConditions) -> None:
        self._conditions = conditions
        self._messages: dict[GroupKey, tuple[Iterator[str], str, Why | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def put(
        self,
        key: GroupKey,
        uids: Sequence[str],
        message: str,
        now: float,
        reason: Why | None = None,
        *,
        is_bug: bool = False,
    ) -> None:
        """Replace the last message of a group, also for members that have not received the previous one, and the
        condition of its PodGroup.
        """
        self._conditions.refuse(key, message, now, is_bug=is_bug)
        self._messages[key] = iter(uids), message, reason

    def drop(self, key: GroupKey) -> None:
        """Drop the message of a group."""
        self._messages.pop(key, None)

    def take(self) -> Iterator[tuple[str, str, Why | None]]:
        """Yield the next members with their message."""
        return islice(self._rest(), AT_ONCE)

    def _rest(self) -> Iterator[tuple[str, str, Why | None]]:
        while self._messages:
            key, (uids, message, reason) = next(iter(self._messages.items()))
            for uid in uids:
                yield uid, message, reason
            self.drop(key)


def incomplete(members: Members, min_members: int) -> str:
    """Return how many members exist, and why others do not count."""
    member_count = members.count_if_placed(members.next_owners)
    message = f"{member_count} of at least {min_members} members exist"
    for role, count in members.missing_by_role(members.next_owners, "waiting").items():
        message += f", {count} of role {role!r} missing"
    reasons = (
        (members.count("gated"), "with scheduling gates"),
        (members.count("refused"), "rejected as invalid"),
        (members.succeeded_of_others, "succeeded under another controller (not counted)"),
    )
    for count, text in reasons:
        if count:
            message += f", {count} {text}"
    # Members that exist and do not count are a sufficient reason.
    return message if members.count("gated") or members.count("refused") else f"{message} ({_HINT})"
