"""Turns by namespace: one that fails or is slow costs the others nothing, and nothing is tried for ever."""

from mooring.kube.namespace_turns import NamespaceTurns, QueuedItem


def _turns(*keys: str, most: int = 100, tries: int = 10) -> NamespaceTurns[str]:
    turns = NamespaceTurns[str](most, tries)
    for key in keys:
        turns.put(key[0], key, key)
    return turns


def _taken(turns: NamespaceTurns[str], now: float = 0.0) -> list[QueuedItem[str]]:
    found = []
    while (waiting := turns.take(now)) is not None:
        found.append(waiting)
    return found


def test_namespaces_take_turns() -> None:
    """However many wait in one of them."""
    assert [one.key for one in _taken(_turns("a1", "a2", "a3", "b1", "c1", "b2"))] == [
        "a1",
        "b1",
        "c1",
        "a2",
        "b2",
        "a3",
    ]


def test_the_newest_of_one_key_is_written_and_never_beside_an_older_one() -> None:
    """Two at once could be carried out in the wrong order."""
    turns = _turns("a1", "a1")
    turns.put("a", "a1", "new")
    (first,) = _taken(turns)
    assert first.item == "new"
    turns.put("a", "a1", "newer")
    assert _taken(turns) == []
    turns.end(first, 0.0, has_failed=True, was_slow=False)
    assert [one.item for one in _taken(turns, 1.0)] == ["newer"]


def test_a_namespace_that_fails_gets_one_write_after_a_growing_pause() -> None:
    """Others go on; what has failed goes behind the others of its namespace."""
    turns = _turns("a1", "a2", "b1")
    first, other, second = _taken(turns)
    for one in (first, second):
        assert turns.end(one, 0.0, has_failed=True, was_slow=False)
    assert turns.next_at(0.0) == 2.0
    (again,) = _taken(turns, 2.0)
    assert (again.key, again.tries) == ("a1", 2)
    turns.put("b", "b2", "b2")
    assert [one.key for one in _taken(turns, 2.0)] == ["b2"]
    turns.end(again, 3.0, has_failed=True, was_slow=False)
    assert turns.next_at(3.0) == 7.0
    (next_one,) = _taken(turns, 7.0)
    assert next_one.key == "a2"
    turns.end(next_one, 7.1, has_failed=False, was_slow=False)
    assert [one.key for one in _taken(turns, 7.1)] == ["a1"]
    turns.end(other, 8.0, has_failed=False, was_slow=False)


def test_a_namespace_with_a_slow_write_gets_no_other_meanwhile() -> None:
    """The API server may wait for its webhook for 30 s."""
    turns = _turns("a1", "a2", "b1")
    first = turns.take(0.0)
    assert first is not None
    turns.slow("a")
    assert [one.key for one in _taken(turns)] == ["b1"]
    turns.end(first, 9.0, has_failed=False, was_slow=True)
    assert [one.key for one in _taken(turns, 9.0)] == ["a2"]


def test_what_fails_each_time_is_dropped() -> None:
    """Its owner would not learn more by it, and memory is bounded."""
    turns, now, results = _turns("a1", tries=3), 0.0, []
    while (waiting := turns.take(now)) is not None:
        results.append(turns.end(waiting, now, has_failed=True, was_slow=False))
        now += 10.0
    assert results == [True, True, False]
    assert (len(turns), turns.next_at(now)) == (0, None)


def test_at_the_limit_the_namespace_that_has_the_most_loses_one() -> None:
    """So a namespace whose events cannot be written does not cost others theirs."""
    turns = _turns("a1", "a2", "a3", most=3)
    assert not turns.put("b", "b1", "b1")
    assert not turns.put("a", "a4", "a4")
    assert sorted(one.key for one in _taken(turns)) == ["a1", "a2", "b1"]
