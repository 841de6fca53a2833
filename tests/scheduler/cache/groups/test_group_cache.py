"""Whether a group has started, by what the API shows of its pods: the same in whatever order they are shown."""

import random
from typing import Any

import msgspec
import pytest

from scheduler.cache.groups.group_cache import GroupCache, Member, Members, MemberState, Rank
from scheduler.kube.group import GroupKey, GroupMembership, NodeTimes, node_times
from scheduler.kube.objects import Pod

KEY = GroupKey("PodGroup", "default", "train")
_STATES: tuple[MemberState, ...] = ("placed", "placed", "leaving", "succeeded", "failed")
Shown = tuple[str, GroupMembership, Member]


def _of(owner: str) -> GroupMembership:
    return GroupMembership(KEY, "train", owner=owner)


def _members(groups: GroupCache, key: GroupKey = KEY) -> Members:
    members = groups.get(key)
    assert members is not None
    return members


def _pods(source: random.Random) -> list[Shown]:
    """Return pods of two Jobs that were made in three attempts."""
    shown = list[Shown]()
    for number in range(source.randrange(1, 9)):
        created = source.choice((0.0, 100.0, 200.0))
        times = NodeTimes(created, created + source.randrange(100))
        membership = _of(source.choice(("job-1", "job-2")))
        shown.append((f"u{number}", membership, Member(source.choice(_STATES), times)))
    return shown


def _start_owners(shown: list[Shown], min_members: int) -> set[str]:
    """Return for which controllers the group has started, for a scheduler that has listed these pods."""
    groups = GroupCache()
    for uid, membership, member in shown:
        groups.put(uid, membership, member)
    members = _members(groups)
    members.set_pod_group_min(min_members)
    members.record_start()
    groups.check(lambda uid: members.pods[uid].state in ("placed", "leaving"))
    return set(members.start_owners)


@pytest.mark.parametrize("seed", range(100))
def test_a_group_has_started_if_as_many_are_shown_in_any_order_to_have_been_placed(seed: int) -> None:
    source = random.Random(seed)
    shown, min_members = _pods(source), source.randrange(1, 6)
    alive = [(membership.owner, member.times) for _, membership, member in shown if member.state == "placed"]
    owners = {owner for owner, _ in alive}
    since = min((times.creation for _, times in alive if times is not None), default=0.0)
    part = [
        membership.owner
        for _, membership, member in shown
        if member.times is not None
        and (
            member.state == "placed"
            or (member.state == "succeeded" and membership.owner in owners)
            or member.times.binding >= since
        )
    ]
    expected = set(part) if alive and len(part) >= min_members else set[str]()
    for _ in range(5):
        assert _start_owners(shown, min_members) == expected
        source.shuffle(shown)


def test_what_is_known_once_stays_until_the_group_lives_no_more() -> None:
    """Pods that took part may be deleted, one by one, and the last one that succeeds keeps it alive."""
    groups, started = GroupCache(), list[set[str]]()
    for number, uid in enumerate("abcd"):
        groups.put(uid, _of("job-1"), Member("placed", NodeTimes(number, number)))
    members = _members(groups)
    members.set_pod_group_min(4)
    for uid in "abc":
        groups.drop(uid)
        members.record_start()
        started.append(set(members.start_owners))
    groups.put("d", _of("job-1"), Member("succeeded", NodeTimes(3, 3)))
    started.append(set(members.start_owners))
    assert groups.job_changed("job-1", 4) == [KEY]
    groups.put("e", _of("job-1"), Member("waiting", rank=(0, "")))
    groups.drop("d")
    assert [*started, members.start_owners] == [{"job-1"}] * 5
    assert [groups.job_changed(job.uid, 0) for job in groups.absent_jobs([])] == [[KEY]]
    assert members.start_owners == set()


def _waiting(groups: GroupCache, uid: str, rank: Rank, key: GroupKey = KEY) -> None:
    groups.put(uid, GroupMembership(key, key.name), Member("waiting", rank=rank))


def test_the_lowest_rank_is_that_of_the_members_that_wait() -> None:
    groups, other = GroupCache(), KEY._replace(name="other")
    for number in range(10):
        _waiting(groups, f"u{number}", (number, f"{9 - number}"))
    assert _members(groups).lowest_rank == (0, "0")
    groups.drop("u0")
    groups.drop("u9")
    assert _members(groups).lowest_rank == (1, "1")
    _waiting(groups, "u0", (0, "9"))
    _waiting(groups, "u1", (1, "8"), other)
    assert (_members(groups).lowest_rank, _members(groups, other).lowest_rank) == ((0, "1"), (1, "8"))


def test_members_that_come_and_go_leave_nothing() -> None:
    groups = GroupCache()
    _waiting(groups, "stays", (0, ""))
    for number in range(1000):
        _waiting(groups, f"u{number}", (1, f"{number}"))
        groups.drop(f"u{number}")
    members = _members(groups)
    assert members.lowest_rank == (0, "")
    assert [len(counts) for counts in (members._counts, members._ranks)] == [1, 1]


TERMINATED = {"containerStatuses": [{"state": {"terminated": {"finishedAt": "1970-01-01T00:03:00Z"}}}]}


@pytest.mark.parametrize(
    ("status", "times"),
    [
        pytest.param({}, NodeTimes(30.0, 60.0), id="creation and binding"),
        pytest.param({"startTime": "1970-01-02T00:00:00Z", **TERMINATED}, NodeTimes(30.0, 60.0), id="no node's clock"),
        pytest.param({"conditions": []}, NodeTimes(30.0, 30.0), id="at its creation at the earliest"),
        pytest.param(None, None, id="not bound"),
    ],
)
def test_when_a_pod_got_its_node(status: dict[str, Any] | None, times: NodeTimes | None) -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    document: dict[str, Any] = {"metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:30Z"}}
    if status is not None:
        document |= {"spec": {"nodeName": "n1"}, "status": {"conditions": [scheduled], **status}}
    assert node_times(msgspec.convert(document, Pod)) == times


@pytest.mark.parametrize("member_state", [*_STATES[1:], "waiting"])
def test_a_job_changes_groups_in_which_its_pods_wait_or_are_placed(member_state: MemberState) -> None:
    """Before they have started, and whatever another Job has there."""
    groups = GroupCache()
    groups.put("u0", _of("job-1"), Member(member_state))
    groups.put("u1", _of("job-2"), Member("gated"))
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
