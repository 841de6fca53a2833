"""The view of one row, which is kept, and changes with the row."""

from collections.abc import Callable

import pytest

from scheduler.cache import node_columns
from scheduler.cache.node_columns import NodeColumns
from scheduler.cache.node_info import NodeInfo


def node_info(cpu: int, name: str = "n1") -> NodeInfo:
    return NodeInfo(name, {}, (), False, {"cpu": cpu, "pods": 10}, None, None, None, None)


def _adopt(nodes: NodeColumns, row: int) -> None:
    snapshot = nodes.snapshot()
    snapshot.use(row, [("cpu", 300)], 1)
    nodes.adopt(snapshot, [row])


CHANGES: dict[str, Callable[[NodeColumns, int], object]] = {
    "a pod comes": lambda nodes, row: nodes.use(row, [("cpu", 300)], 1),
    "a pod goes": lambda nodes, row: nodes.use(row, [("cpu", 100)], -1),
    "PFs are offered": lambda nodes, row: nodes.offer(row, 9),
    "VFs are free": lambda nodes, row: nodes.show_free_vfs(row, nodes.free_vfs_of_row[row]),
    "the node changes": lambda nodes, _row: nodes.put(node_info(5000)),
    "a snapshot is adopted": _adopt,
    "the node goes": lambda nodes, _row: nodes.remove("n1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_kept_view_is_what_its_row_has_after_each_change(change: str) -> None:
    """The view of several rows reads the columns themselves."""
    nodes = NodeColumns()
    row = nodes.put(node_info(4000))
    nodes.use(row, [("cpu", 100)], 1)
    before = nodes.row_view(row)
    assert nodes.row_view(row) is before
    rows = nodes.all_rows()
    CHANGES[change](nodes, row)
    now, columns = nodes.row_view(row), nodes.view(rows)
    assert now.free == columns.free[:, 0].tolist()
    assert now.allocatable == columns.allocatable[:, 0].tolist()


def test_so_many_views_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has some hundred bytes, and there are as many rows as nodes."""
    monkeypatch.setattr(node_columns, "_MOST_ROW_VIEWS", 10)
    nodes = NodeColumns()
    row = nodes.put(node_info(4000))
    first = nodes.row_view(row)
    for number in range(10):
        nodes.row_view(nodes.put(node_info(0, f"m{number}")))
    assert nodes.row_view(row) is not first
    assert nodes.row_view(row) == first
