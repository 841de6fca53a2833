"""The message of an unschedulable pod: why no node fits, and after that the outcome of preemption."""


def refusal(message: str) -> str:
    """Return the part of the message before preemption's."""
    return message.partition(" preemption: ")[0]
