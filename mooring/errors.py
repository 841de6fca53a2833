"""Errors about annotations and records: which document, the place in it, and the rule that it breaks."""


class ContractError(ValueError):
    """A document is invalid.

    ``key`` names the document, ``path`` the place in it (``[1].min_tx_rate``; empty for the whole document). ``rule``
    is the broken rule, with the value.
    """

    kind = "document"

    def __init__(self, key: str, path: str, rule: str) -> None:
        super().__init__(key, path, rule)
        self.key = key
        self.path = path
        self.rule = rule

    def __str__(self) -> str:
        dot = "." if self.path and not self.path.startswith("[") else ""
        return f"{self.kind} {self.key!r}{dot}{self.path}: {self.rule}"


class AnnotationError(ContractError):
    """An annotation is invalid; ``key`` is the annotation's key."""

    kind = "annotation"


class RecordError(ContractError):
    """A record of the node is invalid; ``key`` is its name."""

    kind = "record"
