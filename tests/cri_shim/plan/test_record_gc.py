"""A pod record goes when its pod has gone, and not a moment before."""

from hypothesis import given
from hypothesis import strategies as st

from cri_shim.plan.record_gc import LIST_INTERVAL_S, find_stale_records

UIDS = st.frozensets(st.sampled_from("abcd"))


def test_a_record_goes_at_the_second_list_without_its_sandbox() -> None:
    """Ten minutes apart, and only if it was missing at both."""
    first = find_stale_records({"a", "b"}, {"b"}, (), {}, 100.0)
    assert first.remove == frozenset()
    early = find_stale_records({"a", "b"}, {"b"}, (), first.missing, 100.0 + LIST_INTERVAL_S - 1)
    assert early.remove == frozenset()
    assert find_stale_records({"a", "b"}, {"b"}, (), early.missing, 100.0 + LIST_INTERVAL_S).remove == {"a"}


def test_a_sandbox_seen_again_restarts_the_wait() -> None:
    """Listed once between two lists without it: it was not gone."""
    first = find_stale_records({"a"}, (), (), {}, 0.0)
    second = find_stale_records({"a"}, {"a"}, (), first.missing, LIST_INTERVAL_S)
    third = find_stale_records({"a"}, (), (), second.missing, 2 * LIST_INTERVAL_S)
    assert third.remove == frozenset()
    assert third.missing == {"a": 2 * LIST_INTERVAL_S}


def test_a_sandbox_being_made_keeps_its_record() -> None:
    """The runtime lists a sandbox only after its CNI chain: the record outlives that gap."""
    first = find_stale_records({"a"}, (), (), {}, 0.0)
    assert find_stale_records({"a"}, (), {"a"}, first.missing, LIST_INTERVAL_S).remove == frozenset()


@given(UIDS, st.lists(st.tuples(UIDS, UIDS, st.floats(0, 2 * LIST_INTERVAL_S)), max_size=6))
def test_only_records_missing_all_along_are_removed(
    records: frozenset[str], lists: list[tuple[frozenset[str], frozenset[str], float]]
) -> None:
    """Against a plain retelling: the last time that each pod was listed or being made."""
    missing: dict[str, float] = {}
    last_seen: dict[str, float] = {}
    now, asked_before = 0.0, None
    for listed, in_progress, later in lists:
        now += later
        judged = find_stale_records(records, listed, in_progress, missing, now)
        for uid in records:
            if uid in listed or uid in in_progress:
                last_seen[uid] = now
                assert uid not in judged.remove
            elif uid in judged.remove:
                assert asked_before is not None
                assert now - last_seen.get(uid, 0.0) >= LIST_INTERVAL_S
        missing, records, asked_before = dict(judged.missing), records - judged.remove, now
