"""Equal values as one instance, for as long as anybody has it: thousands of equal pods share what they have in common.

A cache of the last ones would keep what is deleted, of a size that whoever wrote it chooses.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

T = TypeVar("T", bound=Hashable)


class Shared(Generic[T]):
    """The instances that are known; their type allows weak references, and caches its hash."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[T, ref[T]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, value: T, ready: Callable[[T], T] = lambda value: value) -> T:
        """Return the equal instance that is known already; else this one, as ``ready`` makes it."""
        known = self._known.get(value)
        found = known() if known is not None else None
        if found is None:
            found = ready(value)
            self._known[found] = ref(found)
        return found
