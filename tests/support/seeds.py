"""Which part of a loop that breaks every call an ordinary run takes: a seed chooses it; ``--long`` takes all.

The seed is the commit's, so one commit always takes the same part and the next commit another. ``--seed N`` or
MOORING_TEST_SEED repeats a run; pytest prints the seed in the header of its report.
"""

import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, TypeVar

VARIABLE = "MOORING_TEST_SEED"
_WITHOUT_GIT = 1
# Eight hexadecimal digits distinguish commits and are short enough to type.
_DIGITS = 8
# An ordinary run takes one call in this many: on two cores CI has 30 minutes.
_ONE_IN = 16
One = TypeVar("One")
# The kind of a call, and which of its kind it is, from 1.
Call = tuple[str, int]


def chosen_seed(option: int | None, environment: Mapping[str, str], root: Path) -> int:
    """Return the option's seed, else the environment's, else that of the commit of ``root``, else a fixed one."""
    if option is not None:
        return option
    return int(environment[VARIABLE]) if environment.get(VARIABLE) else commit_seed(root)


def commit_seed(root: Path) -> int:
    """Return a seed derived from the id of the checked-out commit, a fixed one without a repository."""
    command = ("git", "-C", str(root), "rev-parse", "HEAD")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return _WITHOUT_GIT
    return int(done.stdout[:_DIGITS], 16) if done.returncode == 0 else _WITHOUT_GIT


@dataclass(frozen=True, slots=True)
class Part:
    """What a run takes of a loop: by ``seed`` one call in sixteen, or all where ``whole``."""

    seed: int
    whole: bool = False

    def of(self, calls: Sequence[One], topic: str = "", one_in: int = _ONE_IN) -> list[One]:
        """Return some of the calls in their order; another ``topic`` gets others. At least one, if there is one."""
        if self.whole:
            return list(calls)
        numbers = Random(f"{self.seed} {topic}").sample(range(len(calls)), ceil(len(calls) / one_in))
        return [calls[number] for number in sorted(numbers)]

    def of_each_kind(self, calls: Iterable[Call], topic: str = "") -> list[Call]:
        """Return some calls of each kind, one of each at the least, kind after kind."""
        kinds: dict[str, list[Call]] = defaultdict(list)
        for call in calls:
            kinds[call[0]].append(call)
        return [call for kind, ones in kinds.items() for call in self.of(ones, f"{topic} {kind}")]

    def random(self, topic: str) -> Random:
        """Return the generator of everything else that a loop leaves to chance."""
        return Random(f"{self.seed} {topic}")

    def document(self) -> dict[str, Any]:
        """Return the fields as JSON takes them to a loop that runs as a program; ``Part(**document)`` reads them."""
        return asdict(self)
