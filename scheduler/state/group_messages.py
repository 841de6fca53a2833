"""What the members of a group that waits are told, in words that count members and nodes. Pure."""

from scheduler.cache.groups.members import Members
from scheduler.cycle.decisions import GroupUnschedulable, Unschedulable


def shortage(members: Members, least: int, verdict: GroupUnschedulable) -> str:
    """Return why fewer members fit than are needed; the group needs at ``least`` so many."""
    reason = _for_the(verdict.fitting + 1, verdict.refusal.reason)
    where = f" in {verdict.where}, where the most do" if verdict.where else ""
    if counting := members.counting:
        half = f"{counting} of at least {least} members are placed, and {verdict.fitting} of"
        return f"group {members.title}: {half} {verdict.wanted} others fit{where}: {reason}"
    return f"group {members.title}: {verdict.fitting} of {verdict.wanted} members fit{where}: {reason}"


def surplus(members: Members, refusal: Unschedulable) -> str:
    """Return why a member is not placed beside as many as the group needs."""
    title = members.title
    return f"group {title}: at least as many members as it needs are placed, this one is not: {refusal.reason}"


def _for_the(number: int, reason: str) -> str:
    """Say of a reason against all nodes for which member it is."""
    return reason.replace("nodes are available: ", f"nodes are available for the {_ordinal(number)}: ", 1)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
