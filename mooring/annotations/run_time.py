"""How long a pod runs: the annotation ``mooring.dev/runs``, or ``runs`` in its group's, such as ``6h`` or ``1d12h``."""

import re
from collections.abc import Mapping

from mooring import names
from mooring.errors import AnnotationError
from mooring.parsing import Value

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_RUN_TIME = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,6}}){unit})?" for unit in _UNITS_S), re.ASCII)
_LONGEST_S = 366 * _UNITS_S["d"]
_RULE = "a run time such as '90m', '6h' or '1d12h': days, hours, minutes and seconds, from 1 s to 366 days"


def run_time_s(value: Value) -> int:
    """Return a run time in seconds."""
    text = value.match(_RUN_TIME, _RULE)
    match = _RUN_TIME.fullmatch(text)
    amounts = match.groupdict(default="0") if match is not None else {}
    seconds = sum(int(amount) * _UNITS_S[unit] for unit, amount in amounts.items())
    if not 1 <= seconds <= _LONGEST_S:
        value.fail(f"{text!r} is not {_RULE}")
    return seconds


def read_run_time(annotations: Mapping[str, str]) -> int | None:
    """Read a pod's own run time in seconds; None without the annotation. Raise AnnotationError."""
    text = annotations.get(names.RUNS)
    return None if text is None else run_time_s(Value(text, names.RUNS, AnnotationError))
