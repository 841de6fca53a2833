"""How long a pod runs, as annotations declare it."""

import pytest

from mooring import names
from mooring.annotations.group import read_group
from mooring.annotations.run_time import read_run_time
from mooring.errors import AnnotationError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("6h", 21_600), ("1d12h", 129_600), ("1h0m1s", 3601), ("366d", 31_622_400)]
)
def test_units_add_up(text: str, seconds: int) -> None:
    assert read_run_time({names.RUNS: text}) == seconds
    group = read_group({names.GROUP: f'{{"name": "a", "min": 2, "runs": "{text}"}}'})
    assert group is not None
    assert group.runs == seconds


def test_without_it_nothing_is_declared() -> None:
    assert read_run_time({}) is None


@pytest.mark.parametrize("text", ["", "6", "0s", "h", "-1h", "1.5h", "6H", "30m1h", "367d", "1h\n", "٦h", "9999999s"])
def test_anything_else_is_an_error_that_names_the_value(text: str) -> None:
    with pytest.raises(AnnotationError, match="is not a run time such as '90m'") as wrong:
        read_run_time({names.RUNS: text})
    assert names.RUNS in str(wrong.value)


def test_an_error_in_a_group_names_the_field() -> None:
    with pytest.raises(AnnotationError, match=r"'mooring.dev/group'\.runs: 6 is not a run time"):
        read_group({names.GROUP: '{"name": "a", "runs": 6}'})
