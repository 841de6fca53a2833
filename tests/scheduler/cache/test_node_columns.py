"""Facts of nodes as columns: each distinct value once, and the empty one always the same number."""

from scheduler.cache.column import Column


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
