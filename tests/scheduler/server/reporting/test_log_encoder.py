"""A log line by msgspec equals the standard library's."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from mooring.program.log import as_json
from scheduler.server.reporting.log_encoder import quickly


class Odd:
    """Something that no encoder knows."""

    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize(
    "fields",
    [
        {"pod": "default/a", "count": 3, "leads": True, "due": None, "share": 0.5},
        {"reason": 'a "quoted" line\nand another, in ἑλληνικά', "names": ["a", ("b", 1)]},
        {"odd": Odd(), "deep": {"odd": Odd()}},
        {"huge": 1 << 70, "name": "not \udcff Unicode"},
        {1: "a key that is not text"},
        {"ts": datetime(2026, 11, 21, 20, 47, 14, 429396, UTC)},
        {"ts": datetime(2026, 11, 21, 20, 47, 14, 0, UTC), "odd": Odd()},
    ],
)
def test_both_encoders_write_equal_lines(fields: dict[Any, Any]) -> None:
    event = {**fields, "event": "pod bound", "program": "mooring-scheduler", "level": "info"}
    line = quickly(event)
    assert b"\n" not in line
    assert json.loads(line) == json.loads(as_json(event))


def test_a_recursive_value_raises_what_the_standard_encoder_raises() -> None:
    event: dict[str, Any] = {}
    event["self"] = event
    with pytest.raises(ValueError, match="Circular"):
        quickly(event)
