"""The error that ends an installation."""


class NodeError(RuntimeError):
    """The host cannot be set up, or a step failed; the message has the subject, its value and the rule."""
