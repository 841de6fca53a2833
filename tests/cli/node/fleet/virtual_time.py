"""An event loop whose time passes only while every task waits."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another one"
        self.now_s += timeout
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.now_s


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(main)
