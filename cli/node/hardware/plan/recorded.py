"""What mlx5_core of Linux 6.12 did with each value, and each order of two settings, to compare a card with.

`../mlx5_settings.json` is written by `python -m bench.nic_differences --record`, which runs the driver in the lab.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mooring.nic.settings import VfSettings

# Where the driver took the settings; otherwise the errno's name.
TAKEN = "ok"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What followed a case: the answer to each step, and the settings that then differ from the first ones."""

    answers: tuple[str, ...]
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """Settings that are written one after the other, and what the driver did with them."""

    steps: tuple[VfSettings, ...]
    recorded: Outcome


@dataclass(frozen=True, slots=True)
class Recording:
    """The settings with which each case begins, and the cases."""

    first: VfSettings
    cases: tuple[Case, ...]


def outcome(first: VfSettings, answers: Sequence[str], found: VfSettings) -> Outcome:
    """Return what followed a case, after which ``found`` was read."""
    before, after = first.to_fields(), found.to_fields()
    return Outcome(tuple(answers), {name: after.get(name) for name in before if after.get(name) != before[name]})


def read_recording(text: str) -> Recording:
    """Read what `dump_recording` returned."""
    document = json.loads(text)
    cases = (
        Case(tuple(VfSettings(**step) for step in steps), Outcome(tuple(answers), settings))
        for steps, answers, settings in document["cases"]
    )
    return Recording(VfSettings(**document["first"]), tuple(cases))


def dump_recording(recording: Recording) -> str:
    """Return the file's text, a case in each line."""
    lines = ",\n".join(
        json.dumps([[step.to_fields() for step in case.steps], case.recorded.answers, case.recorded.settings])
        for case in recording.cases
    )
    return f'{{"first": {json.dumps(recording.first.to_fields())}, "cases": [\n{lines}\n]}}\n'


def difference(case: Case, card: Outcome) -> dict[str, Any] | None:
    """Return what a card did otherwise, as JSON; None if it did the same."""
    if card == case.recorded:
        return None
    sides = {"recorded": case.recorded, "card": card}
    return {
        "steps": [step.to_fields() for step in case.steps],
        **{side: {"answers": list(each.answers), "settings": dict(each.settings)} for side, each in sides.items()},
    }
