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


def test_pods_are_counted_row_by_row() -> None:
    """Pods assigned before the question and after it, of its namespaces only."""
    pods = PodCounts()
    pods.shift(2, affinity_info("x"), 1)
    pods.shift(2, affinity_info("x"), 1)
    pods.shift(1, affinity_info("x", "b"), 1)
    assert pods.counts(about("x"), 4).tolist() == [0, 0, 2, 0]
    pods.shift(3, affinity_info("x"), 1)
    pods.shift(2, affinity_info("x"), -1)
    assert pods.counts(about("x"), 4).tolist() == [0, 0, 1, 1]
    assert pods.counts(about("x", "a", "b"), 4).tolist() == [0, 1, 1, 1]


def test_a_change_of_namespace_labels_counts_again() -> None:
    pods, within = PodCounts(), Scope(EVERYTHING, frozenset(), select_labels({"team": "x"}))
    pods.shift(0, affinity_info("p"), 1)
    assert pods.counts(Question((within,)), 1).tolist() == [0]
    assert pods.put_namespace("a", {"team": "x"})
    assert not pods.put_namespace("a", {"team": "x"})
    assert pods.counts(Question((within,)), 1).tolist() == [1]
    pods.remove_namespace("a")
    assert pods.counts(Question((within,)), 1).tolist() == [0]


def test_terms_are_removed_with_their_pods() -> None:
    """A term is found by the pods that it selects, once for all pods that have it, and removed with the last."""
    term = Term("zone", Scope(select_labels({"app": "y"}), frozenset("a")))
    pods = PodCounts()
    pods.shift(5, affinity_info("x", "a", term), 1)
    pods.shift(6, affinity_info("x", "a", term), 1)
    pods.shift(6, affinity_info("z", "a", term), 1)
    assert pods.terms["anti_affinity"].about(affinity_info("x"), {}) == {}
    assert pods.terms["anti_affinity"].about(affinity_info("y", "b"), {}) == {}
    ((found, row_counts),) = pods.terms["anti_affinity"].about(affinity_info("y"), {}).items()
    assert found == term
    assert row_counts.array(8).tolist() == [0, 0, 0, 0, 0, 1, 2, 0]
    for row, app in ((5, "x"), (6, "x"), (6, "z")):
        pods.shift(row, affinity_info(app, "a", term), -1)
    assert pods.terms["anti_affinity"].about(affinity_info("y"), {}) == {}
    pods.check([])


def test_what_terms_say_of_a_pod_follows_the_terms_and_the_labels_of_its_namespace() -> None:
    """It is kept from one decision to the next; `check` finds it again from all terms."""
    pods, asked = PodCounts(), affinity_info("y", "b")
    named = Term("zone", Scope(select_labels({"app": "y"}), frozenset("b")))
    everywhere = Term("zone", Scope(EVERYTHING, frozenset(), select_labels({"team": "x"})))

    def said() -> set[Term]:
        pods.check(there)
        return set(pods.terms["anti_affinity"].about(asked, pods.namespace_labels("b")))

    there = [(0, affinity_info("x", "a", named))]
    pods.shift(*there[0], 1)
    assert said() == {named}
    there.append((1, affinity_info("x", "a", everywhere)))
    pods.shift(*there[1], 1)
    assert said() == {named}
    pods.put_namespace("b", {"team": "x"})
    assert said() == {named, everywhere}
    there.append((2, affinity_info("x", "c", Term("rack", everywhere.scope))))
    pods.shift(*there[2], 1)
    assert len(said()) == 3
    pods.shift(*there.pop(0), -1)
    assert named not in said()
    pods.put_namespace("b", {})
    assert said() == set()


def test_many_terms_are_summed_by_the_label_that_they_name() -> None:
    """Each has few rows, or many; together they may be thousands."""
    few, many, expected = [RowCounts() for _ in range(50)], RowCounts(), [0] * 200
    for number, one in enumerate(few):
        one.shift(number, 2)
        expected[number] += 2
    for row in range(30, 200):
        many.shift(row, 1)
        expected[row] += 1
    for parts, sums in (
        (few, [2] * 50 + [0] * 150),
        ([*few, many], expected),
        ([many, *few], expected),
        ([], [0] * 200),
    ):
        rows, counts = RowCounts.joint_rows(parts)
        assert np.bincount(rows, counts, 200).tolist() == sums


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
    """The check compares with a new count, so that a number that drifts is found."""
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
            assert dict(zip(rows.tolist(), counts.tolist(), strict=True)) == {
                row: count for row, count in enumerate(expected) if count
            }
            assert row_counts.array(300).tolist() == expected


@pytest.mark.parametrize("rows", [5, 300])
def test_counts_of_parts_add_up(rows: int) -> None:
    parts = [{row: row + 1 for row in range(rows)}, dict.fromkeys(range(0, rows, 2), 5)]
    expected = [row + 1 + 5 * (row % 2 == 0) for row in range(rows)]
    assert RowCounts.of(parts).array(rows).tolist() == expected
    assert RowCounts.of([]).array(2).tolist() == [0, 0]
