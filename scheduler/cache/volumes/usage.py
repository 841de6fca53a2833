"""Which claims the assigned pods use, and on which nodes; pods without claims cost nothing here. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable

from scheduler.kube.storage_objects import ClaimUse


class Usage:
    """The claims in use, updated pod by pod; always equal to a new instance of the same pods."""

    def __init__(self, assigned_pod: Iterable[tuple[str, tuple[ClaimUse, ...]]] = ()) -> None:
        # Claim keys by node, and nodes by claim key, each with the number of pods.
        self._claims_on: dict[str, Counter[str]] = {}
        self._users: dict[str, Counter[str]] = {}
        for node, claims in assigned_pod:
            self.shift(node, claims, 1)

    def copy(self) -> "Usage":
        copy = Usage()
        copy._claims_on, copy._users = self._claims_on.copy(), self._users.copy()
        return copy

    def shift(self, node: str, claims: Iterable[ClaimUse], by: int) -> None:
        """Add a pod's claims on a node (``by`` 1), or remove them (-1)."""
        for claim in claims:
            _shift(self._claims_on, node, claim.key, by)
            _shift(self._users, claim.key, node, by)

    def is_used(self, claim: str) -> bool:
        return claim in self._users

    def claims_on(self, node: str) -> Collection[str]:
        return self._claims_on.get(node, ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _shift(counters: dict[str, Counter[str]], key: str, item: str, by: int) -> None:
    # A copy of the usage may share the counter.
    counter = Counter(counters.get(key))
    counter[item] += by
    if not counter[item]:
        del counter[item]
    if counter:
        counters[key] = counter
    else:
        del counters[key]
