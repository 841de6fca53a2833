"""What was decided for each seed, one JSON line a seed, and how decisions of now differ from it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mooring.parsing import dump
from tests.scheduler.decisions.groups import exact_fills, groups
from tests.scheduler.decisions.single_pods import changed_rates, plain_pods, pods_with_units

FILE = Path(__file__).with_name("recorded.jsonl")
SEEDS = range(300)
_TOPICS: tuple[tuple[str, Callable[[Random], list[str]]], ...] = (
    ("pods", plain_pods),
    ("groups", groups),
    ("units", pods_with_units),
    ("pods", plain_pods),
    ("groups", groups),
    ("rates", changed_rates),
    ("pods", plain_pods),
    ("groups", groups),
    ("fills", exact_fills),
    ("groups", groups),
)


# What the lines about groups and exact fills count.
_COUNTED = re.compile(r"(\d+) (placed|victims)")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The decisions of one seed, a line each."""

    seed: int
    topic: str
    lines: tuple[str, ...]

    @property
    def counts(self) -> Counter[str]:
        """How many members and pods were placed, and how many had to go; of single pods nothing is counted."""
        found = Counter[str]()
        for line in self.lines:
            for number, what in _COUNTED.findall(line):
                found[f"{self.topic}: {what}"] += int(number)
        return found

    def dump(self) -> str:
        return dump({"seed": self.seed, "topic": self.topic, "lines": list(self.lines)})


def decide(seed: int) -> Recorded:
    """Let today's code decide about the cluster and the pods of a seed."""
    topic, scenario = _TOPICS[seed % len(_TOPICS)]
    return Recorded(seed, topic, tuple(scenario(Random(seed))))


def read(file: Path = FILE) -> dict[int, Recorded]:
    documents = map(json.loads, file.read_text().splitlines())
    return {one["seed"]: Recorded(one["seed"], one["topic"], tuple(one["lines"])) for one in documents}


def write(recorded: Iterable[Recorded], file: Path = FILE) -> None:
    file.write_text("".join(f"{one.dump()}\n" for one in recorded))


def differences(before: Recorded, now: Recorded) -> Iterator[str]:
    """Yield the lines of one seed that are gone, and those that are new."""
    ours, theirs = set(now.lines), set(before.lines)
    yield from (f"seed {now.seed} {now.topic} - {line}" for line in before.lines if line not in ours)
    yield from (f"seed {now.seed} {now.topic} + {line}" for line in now.lines if line not in theirs)
    if before.lines != now.lines and ours == theirs:
        yield f"seed {now.seed} {now.topic}: the same decisions in another order or number"
