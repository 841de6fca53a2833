"""Pods by their node, found by either. Pure."""

from collections.abc import Sequence


class PodsByNode:
    """Uids of pods, each on one node."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._on: dict[str, set[str]] = {}

    def add(self, uid: str, node: str) -> None:
        self._nodes[uid] = node
        self._on.setdefault(node, set()).add(uid)

    def drop(self, uid: str) -> None:
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        self._on[node].discard(uid)
        if not self._on[node]:
            del self._on[node]

    def on(self, node: str) -> Sequence[str]:
        return tuple(self._on.get(node, ()))
