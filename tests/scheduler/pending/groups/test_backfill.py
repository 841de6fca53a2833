"""With ``--backfill`` the first group gets a promised start, and others start meanwhile if they do not delay it."""

from typing import Any

import pytest

from scheduler.kube.group import GroupKey
from scheduler.pending.groups.promises import NO_START, read_promise
from scheduler.state.groups.backfill import EarliestStart
from scheduler.state.groups.group_scheduling import demand_of
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import changed
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.scene import seconds_of
from tests.scheduler.story import play, stories

# A pod runs for two hours on one of two nodes, and a group waits for both.
BESIDE = "nodes n1 n2 | run two~2h | group pair-0..1 | wait 1 1"
HOURS = "nodes n1 n2 n3 | run one~1h two~2h three~3h | group pair-0..1 | wait 1 1"
BY_TWO = "by 1970-01-01T02:00:30Z"
KEY = GroupKey("annotation", "default", "pair")


class Promises(GroupScene):
    """A scene in which the first group is promised a start."""

    last_start = 0.0

    def start(self, time: str, within: str = "1") -> None:
        """Expect the promised start, without the time that nodes need; ``same`` as at the last check."""
        promise = read_promise(self.message, 0.0)
        assert promise is not None, self.message
        expected, tolerance = (self.last_start, 0.0) if time == "same" else (seconds_of(time), float(within))
        assert abs(promise.at - expected) <= tolerance, self.message
        self.last_start = promise.at

    def since(self, time: str) -> None:
        (reservation,) = self.machine.reservations.all()
        assert abs(reservation.since - seconds_of(time)) <= 1.0

    def promised(self, *groups: str) -> None:
        promised = [one for one in self.machine.reservations.all() if one.cause == "backfill"]
        assert [one.group.name for one in promised if one.group] == list(groups)

    def conceals(self, *words: str) -> None:
        assert " ".join(words) not in self.message


@pytest.fixture
def scene(make_scene: MakeScene) -> Promises:
    return make_scene(Promises, backfill=True)


@stories(
    {
        "the earliest start that declared ends allow": f"""
            {HOURS} | start 2h | kept one two | says It starts {BY_TWO} on nodes {{one}}, {{two}}, after default/two
            (ends by 1970-01-01T02:00:00Z).$""",
        "the ends come": f"{BESIDE} | come long~3h | wait 7190 | delete two | wait 1 > pair-0..1 | kept",
        "pods that never end allow no promise": """
            nodes n1 | run endless | nodes n2 | group pair-0..1 | wait 1 1 | says No declared end of running pods makes
            room for the group.$ | come other | wait 1 > other""",
        "room of spares is free when their group ends": """
            nodes n1 n2 n3 | group running-0..1 spares=1 runs=2h | wait 0 > running-0..1 | phase Running running-0..1 |
            group pair-0..2 | wait 1 1 | start 2h | delete running-0..1 | wait 1 > pair-0..2""",
        "room of spares is not free while a member runs on": f"""
            nodes n1 n2 n3 | group running-0..1 spares=1 | change running-1 runs=2h | wait 0 > running-0..1 | phase
            Running running-0..1 | group pair-0..1 | wait 1 1 | says {NO_START}""",
        "a group that was passed over when an end is declared": """
            nodes n1 n2 | run endless | group pair-0..1 | wait 1*3 | promised | change endless runs=2h | wait 1*620 |
            promised pair""",
        "the more groups were passed over, the later the next one": """
            nodes n1 n2 | run endless | group a-0..1 | group b-0..1 | group c-0..1 | wait 1 1 1 | owner b | wait 1 |
            owner c""",
        # While it is, nobody's promise ends because it is tried again.
        "a less important group while no start is found for the first": f"""
            nodes n1 n2 | run two~2h | group high-0..2 priority=5 | group pair-0..1 | wait 1 1 1 | promised pair | wait
            {" | promised pair | wait ".join(["595", *["1"] * 10])} | promised pair""",
        "a more important group of other nodes, and no other one then": """
            nodes n1 n2 rack=a | run two~2h nodeSelector=rack:a | nodes n3 n4 rack=b | run four~4h nodeSelector=rack:b
            priority=7 | group pair-0..1 nodeSelector=rack:a | wait 1 1 | promised pair | group urgent-0..1 priority=7
            nodeSelector=rack:b | wait 1 1 | promised urgent""",
        # Nothing is decided about that one, as it is not complete any more.
        "a more important group, and the first one's room is free for others": """
            nodes n1 n2 rack=a | run two~2h nodeSelector=rack:a | nodes n3 n4 rack=b | run four~4h nodeSelector=rack:b
            priority=7 | group pair-0..1 nodeSelector=rack:a | wait 1 1 | promised pair | delete pair-1 | group
            urgent-0..1 priority=7 nodeSelector=rack:b | wait 1 | come small nodeSelector=rack:a | wait 1 > small""",
        # Its promise needs no victims: that alone does not say that the group fits without its spares.
        "a group with spares is decided no more often than others": """
            nodes n-0..2 | run one~2h two~2h three~2h | group pair-0..1 spares=1 | wait 1 1 | says It starts by | quiet
            60 tries=9""",
        "a pod that is being deleted ends at its timestamp, or never with a finalizer": f"""
            nodes n1 n2 | run two | terminate two at=1970-01-01T00:05:00Z | group pair-0..1 | wait 1 1 | says It starts
            by 1970-01-01T00:05:30Z on nodes n1, n2, after default/two (is being deleted). | wait 300 | says It should
            have started by | wait 600 60 | says {NO_START}""",
    }
)
def test_a_group_is_promised_a_start(scene: Promises, story: str) -> None:
    play(scene, story)


@stories(
    {
        "what ends before the start": f"{BESIDE} | come long~3h endless short~1h | wait 1 > short",
        "no group before all of its members declare an end": f"""
            {BESIDE} | group few-0..1 vfs=1 | change few-0 runs=1h | wait 1 | change few-1 runs=1h | wait 1 >
            few-0..1""",
        "what does not touch the room, however long it runs": """
            nodes n1 n2 rack=r1 | run two~2h | nodes n3 rack=r2 | group pair-0..1 within=rack | wait 1 1 | says on rack
            'r1', after default/two | come endless | wait 1 > endless | on n3""",
        # The PF has 90 Gb/s, and the group has other VFs than the pod.
        "what has its rate beside those that end, and later beside the group": """
            nodes n1 vfs=4 | run two~2h vfs=1x60000 | group pair-0 vfs=3x20000 | wait 1 1 | promised pair | come long
            vfs=1x20000 | wait 1 > long""",
        "nothing that has its rate only until the group starts": """
            nodes n1 vfs=4 | run two~2h vfs=1x60000 | group pair-0 vfs=3x25000 | wait 1 1 | promised pair | come long
            vfs=1x20000 | wait 1""",
        "nothing while the group's start is overdue": f"""
            {BESIDE} | wait 7205 2 | says It should have started {BY_TWO} on nodes n1, n2: default/two runs longer |
            come short~1h | wait 1 | delete two | wait 1 > pair-0..1""",
        "nothing while it is overdue, also for a group of short runs": """
            nodes n1 n2 | run two~2h | group pair-0..1 runs=5s | wait 1 1 7205 2 8 | come endless | wait 1""",
    }
)
def test_others_start_meanwhile(scene: Promises, story: str) -> None:
    play(scene, story)


@stories(
    {
        "a pod of a higher priority takes promised room": f"""
            {BESIDE} | come urgent~5h priority=7 | wait 1 > urgent | wait 2 2 | start 5h within=60 | says It was
            promised {BY_TWO} before: default/urgent of a higher priority is on""",
        "a node is lost": """
            nodes n1 n2 n3 | run two~2h three~3h four~4h | group pair-0..1 | wait 1 1 | kept two three | lose two | wait
            1 2 | says before: node '{two}' is gone.""",
        "another leader begins, and a node is lost": f"""
            {HOURS} | later 100 | lead without=two | wait 0 1 1 | says It was promised {BY_TWO} before: node '{{two}}'
            is gone.""",
        "another leader begins, and a pod runs for longer": f"""
            {HOURS} | change two runs=4h | later 100 | lead | wait 0 1 1 | says It was promised {BY_TWO} before:
            default/two began late, or declares a longer run time now.""",
        "a pod begins late, and nothing else changes on its node": """
            nodes n1 n2 | put late~1h | group pair-0..1 | wait 1 1 598 | phase Running late | wait 1*3 | start 4200 |
            says before: default/late began late, or declares a longer run time now.""",
        "a pod that is not Running for its whole run time never ends": """
            nodes n1 | put liar~1h | nodes n2 | run other~4h | nodes n3 | group pair-0..1 | wait 1 1 | kept liar n3 |
            wait 60*150 | kept other n3 | start 4h within=120 | says default/liar""",
        "a pod that is late by its whole run time never ends": """
            nodes n1 | run liar~1h | nodes n2 | run other~4h | nodes n3 | group pair-0..1 | wait 1 1 | kept liar n3 |
            wait 60*150 | kept other n3 | start 4h within=120 | says default/liar""",
    }
)
def test_a_promise_moves_only_with_its_cause(scene: Promises, story: str) -> None:
    """The message names the cause."""
    play(scene, story)


@stories(
    {
        # The message is its only record: a new leader, and the user, read it there.
        "a node restores VFs": """
            nodes n1 | run two~2h | nodes n2 | group pair-0..1 | wait 1 1 | start 2h | nodes n2 held=1 | wait 1*5 |
            start same | promised pair""",
        "a member is made again": """
            nodes n1 n2 n3 | run two~2h three~3h | lose n3 | group pair-0..1 | group other-0..1 | wait 1 | start 3h |
            delete pair-1 | come long~5h | wait 5 | come again group=pair | wait 2 | start same | conceals before: |
            owner pair""",
        # It reads when the group starts from a member's message, and where from the nominated nodes.
        "another leader begins": f"{HOURS} | kept one two | later 100 | lead | wait 0 1 1 | kept one two | since 2h",
        "until a lost member is not made again": """
            nodes n1 n2 | run two~2h | group pair-0..1 | wait 1 | delete pair-1 | come long~5h | wait 25 | wait 6 > long
            | delete pair-0 | kept""",
        "an older group is complete later, until one of a higher priority comes": """
            nodes n1 n2 | run two~2h | group young-0..1 created=30 | wait 1*3 | group old-0..1 created=1 | wait 1*3 |
            promised young | group urgent-0..1 created=40 priority=7 preemptionPolicy=Never | wait 1*3 | promised
            urgent""",
    }
)
def test_a_promise_stays(scene: Promises, story: str) -> None:
    play(scene, story)


@pytest.mark.parametrize("never", ["never-0..2", "never-0..1 nodeSelector=no", "never-0..1 vfs=5"])
def test_a_group_that_no_end_helps_leaves_the_promise_to_the_next(scene: Promises, never: str) -> None:
    """Otherwise one misspelt selector would end promises for all."""
    play(scene, f"nodes n1 n2 | run two~2h | group {never} created=1 | wait 1*3")
    play(scene, "group pair-0..1 created=2 | wait 1*93 | promised pair | delete two | wait 1 > pair-0..1")


def test_without_the_flag_nothing_is_promised(make_scene: MakeScene) -> None:
    play(make_scene(Promises), f"{BESIDE} | conceals It starts by | come endless | wait 1 > endless")


def test_a_pod_beside_the_group_gets_no_promised_vf(scene: Promises) -> None:
    """Of four VFs the group needs two; two are used until it starts."""
    play(scene, "nodes n1 vfs=4 | nodes n2 | run half~2h there~2h | nodes n1 vfs=5 | group pair-0..1 | wait 1 1")
    play(scene, "come beside vfs=1 | wait 1 > beside | on n1")
    promised = {vf.pci for room in scene.rooms if room.assignment is not None for vf in room.assignment.vfs}
    beside = scene.machine.cache.assigned(scene.pods["beside"].metadata.uid)
    assert beside is not None
    assert beside.assignment is not None
    assert promised.isdisjoint(vf.pci for vf in beside.assignment.vfs)


def test_many_pods_that_leave_cause_few_searches(scene: Promises, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them requeues the group, and the promise still holds."""
    searches, search = list[float](), EarliestStart.start_at

    def note(*arguments: Any) -> Any:
        searches.append(scene.now)
        return (yield from search(*arguments))

    monkeypatch.setattr(EarliestStart, "start_at", note)
    runs = " ".join(f"p{number}~{number + 60}m" for number in range(40))
    play(scene, f"nodes n-0..19 | run {runs} vfs=1 | group large-0..19 | wait 1 1 | start 99m")
    count = len(searches)
    for number in range(1, 20, 2):
        play(scene, f"delete p{number} | wait 0.1")
    assert len(searches) - count <= 3
    play(scene, "start same | wait 1*40 | start same")


def test_a_pod_that_begins_late_moves_a_promise_by_minutes(scene: Promises) -> None:
    """Otherwise each second has another promise, and each of them a message for every member."""
    play(scene, "nodes n1 n2 | put late~2h | group pair-0..1 | wait 1 1")
    starts = set[float]()
    for _ in range(240):
        scene.machine.queue.requeue(KEY.entry)
        play(scene, "wait 1 | start 2h within=600")
        starts.add(scene.last_start)
    assert 2 <= len(starts) <= 5


def test_a_group_without_a_start_holds_room_if_that_is_on_too(make_scene: MakeScene) -> None:
    scene = make_scene(Promises, backfill=True, hold_s=30.0)
    play(scene, "nodes n1 n2 | run endless | group pair-0..1 | wait 1 1 31 | nodes n3 vfs=0 | wait 1 | promised")
    play(scene, "owner pair | kept n1 n2")


def test_nothing_is_due_until_the_next_search_may_start(scene: Promises) -> None:
    """A search of a large cluster takes long: until its pause ends, the loop sleeps."""
    play(scene, "nodes small-0..999 vfs=0 | nodes n1 n2 | run two~2h | group pair-0..1 | wait 1 1")
    for _ in range(60):
        play(scene, "wait 0.05")
        due = scene.machine.next_due()
        assert due is None or due > scene.now


def test_equal_members_with_other_run_times_are_equal(scene: Promises) -> None:
    """The group ends with the last of them."""
    play(scene, "group pair-0..1")
    scene.show(*(changed(scene.pods[f"pair-{one}"], spec={"activeDeadlineSeconds": 60 + one}) for one in range(2)))
    demand, _ = demand_of(KEY, scene.machine.state)
    assert len(demand.kinds) == 1
    assert {member.runs_s for member in demand.members} == {61}
