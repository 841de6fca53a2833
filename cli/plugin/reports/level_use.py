"""How a group's members use the levels of the network: in how many domains they are, and which hops leave one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Domains named in one line.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class LevelUse:
    """The domains of one level in which members are, in the order of their ranks; empty where a node has no label.

    Of ``hops`` from each member to the next one, and from the last to the first, ``crossing`` leave a domain.
    """

    label: str
    domains: tuple[str, ...]
    hops: int
    crossing: int

    @property
    def text(self) -> str:
        named = ", ".join(repr(one) if one else "no label" for one in self.domains[:_NAMED])
        more = f" and {len(self.domains) - _NAMED} more" if len(self.domains) > _NAMED else ""
        return f"{len(self.domains)} domain(s): {named}{more}; {self.crossing} of {self.hops} ring hops cross domains"


def level_uses(keys: Iterable[str], labels: Sequence[Mapping[str, str]]) -> Iterator[LevelUse]:
    """Yield how members use each level whose label a node has; ``labels`` are those of each member's node, by rank."""
    for key in keys:
        values = [one.get(key, "") for one in labels]
        if any(values):
            hops = len(values) if len(values) > 1 else 0
            crossing = sum(value != after for value, after in zip(values, (*values[1:], values[0]), strict=True))
            yield LevelUse(key, tuple(dict.fromkeys(values)), hops, crossing)
