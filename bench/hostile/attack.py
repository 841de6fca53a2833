"""What an attack is: a function that attacks while its context lasts, and takes back what its attacker can delete."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from bench.hostile.stage import Stage

Attacked = Literal["scheduler", "advertiser", "shim", "cni"]
Attacks = dict[str, "Attack"]
_Function = Callable[[Stage], AsyncIterator[None]]


@dataclass(frozen=True, slots=True)
class Attack:
    """``program`` is what is attacked; ``lasts_s`` is for how long innocents are watched after the attack has begun."""

    name: str
    what: str
    program: Attacked
    lasts_s: float
    run: Callable[[Stage], AbstractAsyncContextManager[None]]


ATTACKS: Attacks = {}


def attack(
    name: str, what: str, program: Attacked = "scheduler", lasts_s: float = 5.0
) -> Callable[[_Function], _Function]:
    """Enter a function among the attacks; ``what`` says who does what."""

    def enter(function: _Function) -> _Function:
        ATTACKS[name] = Attack(name, what, program, lasts_s, asynccontextmanager(function))
        return function

    return enter
