"""What stops an installation: said to the person who runs it, in words."""


class NodeError(RuntimeError):
    """A host that cannot be set up as it is, or a step that failed; what was found, and which rule it breaks."""
