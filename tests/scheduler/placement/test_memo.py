"""What a memo keeps is bounded by weight: an object may have many times the VFs of an ordinary one."""

import pytest

from scheduler.placement.memo import Memo


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        pytest.param("a1 b1 c1 d1 e3", {"d": 3, "e": 4}, id="the oldest are dropped until a value has room"),
        pytest.param("a1" + " b3" * 9, {"a": 0, "b": 9}, id="a value that is kept again weighs once"),
        pytest.param("a1 b9", {"b": 1}, id="a value heavier than all is alone"),
        pytest.param("a1 b9 c1", {"c": 2}, id="and goes for the next"),
    ],
)
def test_a_memo_keeps_the_latest_values_of_a_limited_weight(kept: str, expected: dict[str, int]) -> None:
    memo = Memo[str, int](4)
    for number, word in enumerate(kept.split()):
        memo.keep(word[0], number, weight=int(word[1]))
    assert {key: value for key in "abcde" if (value := memo.get(key)) is not None} == expected
