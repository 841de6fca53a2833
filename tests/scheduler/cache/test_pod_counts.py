"""Assigned pods are counted by what plugins ask, and what is kept stays equal to a new count."""

from random import Random

import numpy as np
import pytest

from scheduler.cache import pod_counts as pod_counts
from scheduler.cache.pod_counts import PodCounts, Question
from scheduler.cache.row_counts import RowCounts
from scheduler.kube.selection.affinity import AffinityInfo, Scope, Term
from scheduler.kube.selection.selectors import EVERYTHING, select_labels


def affinity_info(app: str, namespace: str = "a", *required_anti_affinity: Term) -> AffinityInfo:
    return AffinityInfo(namespace, (("app", app),), required_anti_affinity=required_anti_affinity)


def about(app: str, *namespaces: str) -> Question:
    return Question((Scope(select_labels({"app": app}), frozenset(namespaces or ("a",))),))


def test_a_change_of_namespace_labels_counts_again() -> None:
    pods, within = PodCounts(), Scope(EVERYTHING, frozenset(), select_labels({"team": "x"}))
    pods.shift(0, affinity_info("p"), 1)
    assert pods.counts(Question((within,)), 1).tolist() == [0]
    assert pods.put_namespace("a", {"team": "x"})
    assert not pods.put_namespace("a", {"team": "x"})
    assert pods.counts(Question((within,)), 1).tolist() == [1]
    pods.remove_namespace("a")
    assert pods.counts(Question((within,)), 1).tolist() == [0]


def test_a_limited_number_of_questions_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently asked one is dropped, and counted again when it is asked again."""
    monkeypatch.setattr(pod_counts, "_FEWEST_QUESTIONS", 2)
    monkeypatch.setattr(pod_counts, "_MOST_COUNTS", 0)
    pods, there = PodCounts(), [(number, affinity_info(f"app{number % 4}")) for number in range(8)]
    for row, one in there:
        pods.shift(row, one, 1)
    for _ in range(3):
        for number in range(4):
            expected = [int(row % 4 == number) for row in range(8)]
            assert pods.counts(about(f"app{number}"), 8).tolist() == expected
            pods.check(there)
    pods.shift(0, affinity_info("app1"), 1)
    assert pods.counts(about("app1"), 8).tolist() == [1, 1, 0, 0, 0, 1, 0, 0]


def test_the_check_finds_a_pod_that_is_not_counted() -> None:
    pods = PodCounts()
    pods.shift(0, affinity_info("x"), 1)
    pods.counts(about("x"), 1)
    pods.check([(0, affinity_info("x"))])
    with pytest.raises(AssertionError, match="counts differ from those of the assigned pods"):
        pods.check([(0, affinity_info("x")), (1, affinity_info("y"))])


def test_counts_are_the_same_with_few_rows_and_many() -> None:
    """It changes from numbers to an array on the way, and counts may go below zero."""
    random, row_counts, expected = Random(1), RowCounts(), [0] * 300
    for step in range(3000):
        row, by = random.randrange(1 + step // 10), random.choice([-2, -1, 1, 1, 3])
        row_counts.shift(row, by)
        expected[row] += by
        if step % 100 == 0:
            rows, counts = row_counts.rows()
            there = dict(zip(rows.tolist(), counts.tolist(), strict=True))
            assert there == {row: count for row, count in enumerate(expected) if count}
            assert row_counts.array(300).tolist() == expected


@pytest.mark.parametrize("sizes", [[], [5, 3], [300, 5], [5, 300], [50] * 50])
def test_counts_of_parts_add_up(sizes: list[int]) -> None:
    """Each has few rows, or many; together they may be thousands."""
    parts = [{row: row + number + 1 for row in range(number, size)} for number, size in enumerate(sizes)]
    expected = [sum(part.get(row, 0) for part in parts) for row in range(300)]
    assert RowCounts.of(parts).array(300).tolist() == expected
    rows, counts = RowCounts.joint_rows([RowCounts.of([part]) for part in parts])
    assert np.bincount(rows, counts, 300).tolist() == expected
