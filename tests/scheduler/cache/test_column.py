"""A column's distinct values, and what is kept of judgements about them and of rows."""

import contextlib

import numpy as np
import pytest

from scheduler.cache import node_columns
from scheduler.cache.column import NOT_KEPT, Column
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import NodeInfo
from scheduler.placement.steps import Steps

ROWS = np.arange(4)


class _Judge:
    """Judges a text by its length, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, value: str) -> int:
        self.asked.append(value)
        return len(value)


def _column(*values: str) -> Column[str]:
    column = Column(len(values), "")
    for row, value in enumerate(values):
        column[row] = value
    return column


def test_a_value_is_judged_once_by_each_judge() -> None:
    """Whatever the rows, unless a judge is not sure; a column without ``by`` is judged each time."""
    column, judge, other = _column("a", "bb", "a", ""), _Judge(), _Judge()
    assert column.spread(lambda _: NOT_KEPT, ROWS[:1], "one").tolist() == [NOT_KEPT]
    assert column.spread(judge, ROWS[:2], "one").tolist() == [1, 2]
    assert column.spread(judge, ROWS, "one").tolist() == [1, 2, 1, 0]
    assert sorted(judge.asked) == ["", "a", "bb"]
    assert column.spread(other, ROWS, "other").tolist() == [1, 2, 1, 0]
    assert sorted(other.asked) == ["", "a", "bb"]
    column.spread(judge, ROWS)
    assert len(judge.asked) == 6


def test_a_judgement_ends_with_its_value() -> None:
    """The number of a value that no row has any more is another value's later."""
    column, judge = _column("a", "bb", "", ""), _Judge()
    assert column.spread(judge, ROWS, "one").tolist() == [1, 2, 0, 0]
    column[1] = "a"
    column[2] = "dddd"
    assert column.spread(judge, ROWS, "one").tolist() == [1, 1, 4, 0]
    column[3] = "bb"
    assert column.spread(judge, ROWS, "one").tolist() == [1, 1, 4, 2]


def test_judgements_of_few_judges_and_few_texts_are_kept() -> None:
    """A text for each of many pods, or for each version of a value, would be kept for ever."""
    column, judge = _column("a", "b", "c", "d"), _Judge()
    for number in range(1000):
        column.spread(judge, ROWS, number)
    asked = len(judge.asked)
    column.spread(judge, ROWS, 0)
    assert len(judge.asked) > asked
    for number in range(1000):
        column[0] = f"v{number}"
        column.spread(lambda value: column.judgements("texts").code(f"reason {value}"), ROWS, "texts")
    kept = column.judgements("texts")
    assert len(kept.texts) < 300
    texts = {code: text for text, code in kept.texts.items()}
    codes = column.spread(lambda value: kept.code(f"reason {value}"), ROWS, "texts").tolist()
    assert [texts[code] for code in codes] == ["reason v999", "reason b", "reason c", "reason d"]


def test_a_call_that_continues_keeps_what_was_judged_before() -> None:
    """However many texts there are: otherwise a decision that is made in turns would never end."""
    count = 1000
    column = _column(*(f"v{number}" for number in range(count)))

    class Turn(Steps):
        def judge(self) -> None:
            super().judge()
            if self.value_count > 300:
                raise InterruptedError

    turns = 0
    while turns < 10:
        turns += 1
        with contextlib.suppress(InterruptedError):
            column.spread(lambda value: column.judgements("texts").code(value), np.arange(count), "texts", Turn())
            break
    assert turns == 4


def test_a_column_drops_values_that_no_row_has() -> None:
    """However often rows change, values do not pile up; what a row lacks keeps the number 0, even if none lacks it."""
    column: Column[str | None] = Column(4, None)
    expected: list[str | None] = [None] * 4
    for step in range(2000):
        lacks = step % 600 < 300 and step % 7 < 2
        expected[step % 4] = column[step % 4] = None if lacks else f"v{step}"
        assert len(column.values) < 200
        assert [column[row] for row in range(4)] == expected
        assert [number == 0 for number in column.ids] == [value is None for value in expected]
    column[3] = column[0]
    assert column.ids[0] == column.ids[3]


def test_so_many_views_of_rows_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has some hundred bytes, and there are as many rows as nodes."""
    monkeypatch.setattr(node_columns, "_MOST_ROW_VIEWS", 10)
    nodes = NodeColumns()
    rows = [nodes.put(NodeInfo(f"n{number}", {}, (), False, {}, None, None, None, None)) for number in range(11)]
    first = nodes.row_view(rows[0])
    assert nodes.row_view(rows[0]) is first
    for row in rows[1:]:
        nodes.row_view(row)
    assert nodes.row_view(rows[0]) is not first
    assert nodes.row_view(rows[0]) == first
