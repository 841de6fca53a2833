"""Whether a group has started, by what the API shows of its pods: the same in whatever order they are shown."""

import random
from typing import Any

import msgspec
import pytest

from scheduler.cache.groups.group_cache import GroupCache, Member, Members, MemberState
from scheduler.kube.group import GroupKey, GroupMembership, NodeTimes, node_times
from scheduler.kube.objects import Pod

KEY = GroupKey("PodGroup", "default", "train")
_STATES: tuple[MemberState, ...] = ("placed", "placed", "leaving", "succeeded", "failed")
Shown = tuple[str, GroupMembership, Member]


def _pods(source: random.Random) -> list[Shown]:
    """Return pods of two Jobs that were made in three attempts."""
    shown = list[Shown]()
    for number in range(source.randrange(1, 9)):
        created = source.choice((0.0, 100.0, 200.0))
        times = NodeTimes(created, created + source.randrange(100))
        membership = GroupMembership(KEY, "train", owner=source.choice(("job-1", "job-2")))
        shown.append((f"u{number}", membership, Member(source.choice(_STATES), times)))
    return shown


def _listed(shown: list[Shown], min_members: int) -> frozenset[str]:
    """Return for which controllers the group has started, for a scheduler that has listed these pods."""
    groups = GroupCache()
    for uid, membership, member in shown:
        groups.put(uid, membership, member)
    members = groups.get(KEY)
    assert members is not None
    members.set_min(min_members)
    members.judge()
    groups.check(lambda uid: members.pods[uid].state in ("placed", "leaving"))
    return frozenset(members.start_owners)


@pytest.mark.parametrize("seed", range(100))
def test_the_order_in_which_pods_are_shown_does_not_matter(seed: int) -> None:
    source = random.Random(seed)
    shown, min_members = _pods(source), source.randrange(1, 6)
    started = _listed(shown, min_members)
    for _ in range(5):
        source.shuffle(shown)
        assert _listed(shown, min_members) == started


@pytest.mark.parametrize("seed", range(100))
def test_a_group_has_started_if_as_many_are_shown_to_have_been_placed(seed: int) -> None:
    source = random.Random(seed)
    shown, min_members = _pods(source), source.randrange(1, 6)
    alive = [(membership.owner, member.times) for _, membership, member in shown if member.state == "placed"]
    owners = {owner for owner, _ in alive}
    since = min((times.creation for _, times in alive if times is not None), default=0.0)
    counts = [
        member.times is not None
        and (
            member.state == "placed"
            or (member.state == "succeeded" and membership.owner in owners)
            or member.times.binding >= since
        )
        for _, membership, member in shown
    ]
    took_part = {membership.owner for (_, membership, _), is_part in zip(shown, counts, strict=True) if is_part}
    expected = took_part if alive and sum(counts) >= min_members else set()
    assert _listed(shown, min_members) == expected


def test_what_is_known_once_stays_until_the_group_lives_no_more() -> None:
    """Pods that took part may be deleted, one by one, and the last one that succeeds keeps it alive."""
    membership = GroupMembership(KEY, "train", owner="job-1")
    groups = GroupCache()
    for number, uid in enumerate("abcd"):
        groups.put(uid, membership, Member("placed", NodeTimes(number, number)))
    members = groups.get(KEY)
    assert members is not None
    members.set_min(4)
    for uid in "abc":
        groups.drop(uid)
        members.judge()
        assert members.start_owners == {"job-1"}
    groups.put("d", membership, Member("succeeded", NodeTimes(3, 3)))
    assert members.start_owners == {"job-1"}
    assert groups.job_changed("job-1", 4) == [KEY]
    groups.put("e", membership, Member("waiting", rank=(0, "")))
    groups.drop("d")
    assert members.start_owners == {"job-1"}
    assert [groups.job_changed(job.uid, 0) for job in groups.absent_jobs([])] == [[KEY]]
    assert members.start_owners == set()


def _status(**fields: Any) -> Pod:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    document = {
        "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:30Z"},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [scheduled], **fields},
    }
    return msgspec.convert(document, Pod)


def test_times_are_those_of_the_creation_and_of_the_binding() -> None:
    """One whose Binding is not shown had its node when it was created, at the earliest; a node's clock is not read."""
    ends = [{"state": {"terminated": {"finishedAt": f"1970-01-01T00:0{minute}:00Z"}}} for minute in (3, 4, 2)]
    for fields in ({}, {"containerStatuses": ends}):
        assert node_times(_status(**fields)) == NodeTimes(30.0, 60.0)
    assert node_times(_status(conditions=[])) == NodeTimes(30.0, 30.0)
    assert node_times(msgspec.convert({"metadata": {"name": "p"}}, Pod)) is None


@pytest.mark.parametrize("member_state", [*_STATES[1:], "waiting"])
def test_a_job_changes_groups_in_which_its_pods_wait_or_are_placed(member_state: MemberState) -> None:
    """Before they have started, and whatever another Job has there."""
    groups = GroupCache()
    groups.put("u0", GroupMembership(KEY, "train", owner="job-1"), Member(member_state))
    groups.put("u1", GroupMembership(KEY, "train", owner="job-2"), Member("gated"))
    assert groups.job_changed("job-1", 1) == ([KEY] if member_state in ("waiting", "placed") else [])
    assert groups.job_changed("job-2", 1) == []


def test_a_change_of_a_job_reads_only_the_groups_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of groups, and each pod that succeeds changes its Job."""
    groups, checked, has_owner = GroupCache(), list[GroupKey](), Members.has_owner
    keys = [GroupKey("controller", "default", f"job-{number}") for number in range(9)]
    for key in keys:
        groups.put(key.name, GroupMembership(key, "train", owner=key.name), Member("placed"))

    def note(members: Members, owner: str) -> bool:
        checked.append(members.key)
        return has_owner(members, owner)

    monkeypatch.setattr(Members, "has_owner", note)
    assert groups.job_changed("job-4", 1) == [keys[4]]
    groups.drop("job-5")
    assert groups.job_changed("job-5", 1) == []
    assert checked == [keys[4]]
    groups.check(lambda _: True)
