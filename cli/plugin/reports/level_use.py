"""How many domains of each network level the members of a group use, and how many hops leave a domain."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Domains named in one line.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class LevelUse:
    """The domains of one level that have members, in the order of their ranks; empty for a node without the label.

    ``hops`` lead from each member to the next one, and from the last to the first; ``crossing`` of them leave a domain.
    """

    label: str
    domains: tuple[str, ...]
    hops: int
    crossing: int

    @property
    def text(self) -> str:
        named = ", ".join(repr(domain) if domain else "no label" for domain in self.domains[:_NAMED])
        more = f" and {len(self.domains) - _NAMED} more" if len(self.domains) > _NAMED else ""
        return f"{len(self.domains)} domain(s): {named}{more}; {self.crossing} of {self.hops} ring hops cross domains"


def level_uses(keys: Iterable[str], labels: Sequence[Mapping[str, str]]) -> Iterator[LevelUse]:
    """Yield the use of each level that some node has a label of; ``labels`` are of the members' nodes, by rank."""
    for key in keys:
        values = [label.get(key, "") for label in labels]
        if any(values):
            hops = len(values) if len(values) > 1 else 0
            crossing = sum(value != after for value, after in zip(values, (*values[1:], values[0]), strict=True))
            yield LevelUse(key, tuple(dict.fromkeys(values)), hops, crossing)
