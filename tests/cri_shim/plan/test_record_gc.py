"""A pod record goes when its pod has gone, and not a moment before."""

from hypothesis import given
from hypothesis import strategies as st

from cri_shim.plan.record_gc import LIST_INTERVAL_S, find_stale_records

UIDS = st.frozensets(st.sampled_from("abcd"))


def test_a_record_goes_at_the_second_list_without_its_sandbox() -> None:
    """Ten minutes apart, and only if it was missing at both."""
    first = find_stale_records({"a", "b"}, {"b"}, (), {}, 100.0)
    assert first.uids == frozenset()
    early = find_stale_records({"a", "b"}, {"b"}, (), first.missing_since_s, 100.0 + LIST_INTERVAL_S - 1)
    assert early.uids == frozenset()
    assert find_stale_records({"a", "b"}, {"b"}, (), early.missing_since_s, 100.0 + LIST_INTERVAL_S).uids == {"a"}


def test_a_sandbox_seen_again_restarts_the_wait() -> None:
    """Listed once between two lists without it: it was not gone."""
    first = find_stale_records({"a"}, (), (), {}, 0.0)
    second = find_stale_records({"a"}, {"a"}, (), first.missing_since_s, LIST_INTERVAL_S)
    third = find_stale_records({"a"}, (), (), second.missing_since_s, 2 * LIST_INTERVAL_S)
    assert third.uids == frozenset()
    assert third.missing_since_s == {"a": 2 * LIST_INTERVAL_S}


def test_a_sandbox_being_made_keeps_its_record() -> None:
    """The runtime lists a sandbox only after its CNI chain: the record outlives that gap."""
    first = find_stale_records({"a"}, (), (), {}, 0.0)
    assert find_stale_records({"a"}, (), {"a"}, first.missing_since_s, LIST_INTERVAL_S).uids == frozenset()


@given(UIDS, st.lists(st.tuples(UIDS, UIDS, st.floats(0, 2 * LIST_INTERVAL_S)), max_size=6))
def test_only_records_missing_all_along_are_removed(
    records: frozenset[str], lists: list[tuple[frozenset[str], frozenset[str], float]]
) -> None:
    """Against a plain retelling: the last time that each pod was listed or being made."""
    missing_since_s: dict[str, float] = {}
    last_seen: dict[str, float] = {}
    now, asked_before = 0.0, None
    for listed, in_progress, later in lists:
        now += later
        stale = find_stale_records(records, listed, in_progress, missing_since_s, now)
        for uid in records:
            if uid in listed or uid in in_progress:
                last_seen[uid] = now
                assert uid not in stale.uids
            elif uid in stale.uids:
                assert asked_before is not None
                assert now - last_seen.get(uid, 0.0) >= LIST_INTERVAL_S
        missing_since_s, records, asked_before = dict(stale.missing_since_s), records - stale.uids, now
