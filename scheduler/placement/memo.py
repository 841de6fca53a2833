"""Cache results of pure functions by their arguments. This saves time and changes no outcome."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def interner(max_count: int) -> Callable[[Key], Key]:
    """Return a function that returns one instance of equal values, so that results can be looked up by identity."""
    return lru_cache(max_count)(lambda value: value)


class Memo(Generic[Key, Value]):
    """The latest values by key; beyond ``max_count``, counted by weight, the oldest are dropped.

    A key may be the identity of arguments that take long to hash. The value then holds the arguments.
    """

    __slots__ = ("_count", "_max_count", "_values")

    def __init__(self, max_count: int) -> None:
        self._max_count, self._count = max_count, 0
        self._values: dict[Key, tuple[Value, int]] = {}

    def get(self, key: Key) -> Value | None:
        entry = self._values.get(key)
        return None if entry is None else entry[0]

    def keep(self, key: Key, value: Value, weight: int = 1) -> Value:
        """Keep a value; an ordinary one weighs 1."""
        self.drop(key)
        while self._values and self._count + weight > self._max_count:
            self.drop(next(iter(self._values)))
        self._values[key] = value, weight
        self._count += weight
        return value

    def drop(self, key: Key) -> None:
        _, weight = self._values.pop(key, (None, 0))
        self._count -= weight

    def clear(self) -> None:
        self._values.clear()
        self._count = 0
