"""What stops an installation, in words for the person who runs it."""


class NodeError(RuntimeError):
    """A host that cannot be set up as it is, or a step that failed; what was found, and which rule it breaks."""
