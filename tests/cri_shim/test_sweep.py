"""A pod record goes when its pod has gone, and not a moment before."""

from hypothesis import given
from hypothesis import strategies as st

from cri_shim.sweep import ASKING_S, sweep

UIDS = st.frozensets(st.sampled_from("abcd"))


def test_a_record_goes_at_the_second_asking_without_its_sandbox() -> None:
    """Ten minutes apart, and only if it was missing at both."""
    first = sweep({"a", "b"}, {"b"}, (), {}, 100.0)
    assert first.remove == frozenset()
    early = sweep({"a", "b"}, {"b"}, (), first.missing, 100.0 + ASKING_S - 1)
    assert early.remove == frozenset()
    assert sweep({"a", "b"}, {"b"}, (), early.missing, 100.0 + ASKING_S).remove == {"a"}


def test_a_sandbox_seen_again_starts_the_wait_anew() -> None:
    """Listed once between two askings without it: it was not gone."""
    first = sweep({"a"}, (), (), {}, 0.0)
    second = sweep({"a"}, {"a"}, (), first.missing, ASKING_S)
    third = sweep({"a"}, (), (), second.missing, 2 * ASKING_S)
    assert third.remove == frozenset()
    assert third.missing == {"a": 2 * ASKING_S}


def test_a_sandbox_being_made_keeps_its_record() -> None:
    """The runtime lists a sandbox only after its CNI chain: the record outlives that gap."""
    first = sweep({"a"}, (), (), {}, 0.0)
    assert sweep({"a"}, (), {"a"}, first.missing, ASKING_S).remove == frozenset()


@given(UIDS, st.lists(st.tuples(UIDS, UIDS, st.floats(0, 2 * ASKING_S)), max_size=6))
def test_only_records_missing_all_along_are_removed(
    records: frozenset[str], askings: list[tuple[frozenset[str], frozenset[str], float]]
) -> None:
    """Against a plain retelling: the last time that each pod was listed or being made."""
    missing: dict[str, float] = {}
    last_seen: dict[str, float] = {}
    now, asked_before = 0.0, None
    for listed, making, later in askings:
        now += later
        judged = sweep(records, listed, making, missing, now)
        for uid in records:
            if uid in listed or uid in making:
                last_seen[uid] = now
                assert uid not in judged.remove
            elif uid in judged.remove:
                assert asked_before is not None
                assert now - last_seen.get(uid, 0.0) >= ASKING_S
        missing, records, asked_before = dict(judged.missing), records - judged.remove, now
