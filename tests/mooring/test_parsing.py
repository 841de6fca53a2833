"""Reading JSON strictly: what a hostile document costs."""

import contextlib
import json
import time

import pytest

from mooring.errors import AnnotationError
from mooring.parsing import MAX_BYTES, parse


def _cpu_s(text: str) -> float:
    """Return the least CPU time, in seconds, of three readings of a document, refused or not."""
    took = []
    for _ in range(3):
        begun = time.thread_time()
        with contextlib.suppress(AnnotationError):
            parse(text, "key", AnnotationError)
        took.append(time.thread_time() - begun)
    return min(took)


def test_a_repeated_field_is_found_in_one_pass() -> None:
    """The last of 29,000 fields repeats an earlier one: the refusal costs about what reading them costs."""
    pairs = [f'"{number:04x}":0' for number in range(29_000)]
    distinct, repeated = (f"{{{','.join([*pairs[:-1], last])}}}" for last in (pairs[-1], pairs[-2]))
    assert len(repeated) <= MAX_BYTES
    assert len(json.loads(distinct)) == 29_000
    with pytest.raises(AnnotationError, match="field '7146' appears twice in one object"):
        parse(repeated, "key", AnnotationError)
    assert _cpu_s(repeated) < 10 * _cpu_s(distinct)
