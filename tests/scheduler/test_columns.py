"""Facts of nodes as columns: each distinct value once, and the empty one always the same number."""

from scheduler.columns import Column


def test_a_column_forgets_values_that_no_row_has() -> None:
    """However often rows change, values do not pile up; what a row lacks keeps the number 0."""
    column: Column[str | None] = Column(4, None)
    for step in range(2000):
        column[step % 4] = None if step % 300 < 50 else f"v{step}"
        assert len(column.values) < 200
        assert [row for row in range(4) if column.ids[row] == 0] == [row for row in range(4) if column[row] is None]
    column[3] = column[0]
    assert column.ids[0] == column.ids[3]
