"""What a command is run with, and the errors by which it ends."""

from dataclasses import dataclass

from cli.plugin.arguments import Arguments


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line, its namespace, the UNIX time, the API server, and whether the output shows symbols.

    ``version`` is that of this program, or of the one that took the bundle that is read.
    """

    arguments: Arguments
    namespace: str
    now: float
    server: str = ""
    symbols: bool = False
    version: str = ""

    @property
    def is_wide(self) -> bool:
        return self.arguments.output.format == "wide"

    @property
    def scope(self) -> str:
        """Return the part of a list's path that names the namespace; empty for all namespaces."""
        return "" if self.arguments.selection.all_namespaces else f"/namespaces/{self.namespace}"

    @property
    def labels(self) -> dict[str, str]:
        """Return the parameters of a list by which the API server selects objects."""
        selector = self.arguments.selection.selector
        return {"labelSelector": selector} if selector else {}
