"""What a pod is told: why no node will do, and after that whether others could have gone for it."""


def refusal(message: str) -> str:
    """Return what is said before it comes to preemption."""
    return message.partition(" preemption: ")[0]
