"""What a memo keeps is bounded by weight: an object may have many times the VFs of an ordinary one."""

from scheduler.placement.memo import Memo


def test_the_oldest_are_dropped_until_a_value_has_room() -> None:
    memo = Memo[str, int](4)
    for number, key in enumerate("abcd"):
        memo.keep(key, number)
    memo.keep("heavy", 4, weight=3)
    assert [memo.get(key) for key in ("a", "b", "c", "d", "heavy")] == [None, None, None, 3, 4]


def test_a_value_that_is_kept_again_weighs_once() -> None:
    memo = Memo[str, int](4)
    memo.keep("other", 0)
    for number in range(9):
        memo.keep("again", number, weight=3)
    assert [memo.get("other"), memo.get("again")] == [0, 8]


def test_a_value_heavier_than_all_is_alone() -> None:
    memo = Memo[str, int](4)
    memo.keep("light", 0)
    memo.keep("heavy", 1, weight=9)
    assert [memo.get("light"), memo.get("heavy")] == [None, 1]
    memo.keep("light", 2)
    assert [memo.get("light"), memo.get("heavy")] == [2, None]
