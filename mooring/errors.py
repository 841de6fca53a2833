"""Errors of documents of the contract: which document, where in it, and which rule it breaks."""


class ContractError(ValueError):
    """A document that breaks the contract.

    ``key`` names the document, ``path`` the place in it (``[1].min_tx_rate``; empty for the whole), ``rule`` the broken
    rule, with the value.
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
    """An annotation that cannot be read; ``key`` is the annotation's key."""

    kind = "annotation"


class RecordError(ContractError):
    """One of the node's records that cannot be read; ``key`` is its name."""

    kind = "record"
