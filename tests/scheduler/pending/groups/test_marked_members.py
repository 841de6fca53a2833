"""What a crash in the middle of a preemption leaves of a group that goes as a whole is evicted, and nobody else."""

import pytest

from mooring import names
from mooring.kube.events import Identity, Unreadable
from scheduler.kube.workload_objects import PodGroup
from scheduler.pending.groups.group_evictions import PATIENCE_S
from tests.scheduler.conftest import Json, MakeScene
from tests.scheduler.group_life import changed
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories


def _condition(scheduler: str = "mooring", reason: str = "PreemptionByScheduler") -> Json:
    message = f"{scheduler}: preempting to accommodate a higher priority pod"
    mark = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    # The tests' time begins here.
    return {"conditions": [mark | {"lastTransitionTime": "1970-01-01T00:00:00Z"}]}


STATES: dict[str, Json] = {
    "bare": {},
    "marked": {"status": _condition()},
    "leaving": {"status": _condition(), "metadata": {"deletionTimestamp": "2026-01-01T00:10:30Z"}},
    "foreign": {"status": _condition("other")},
    "evicted": {"status": _condition(reason="Evicted")},
}


class MarkedScene(GroupScene):
    """A scene with PodGroup train, whose members m-0, m-1 and so on have a node."""

    def unreadable(self) -> None:
        self.machine.handle(PodGroup, Unreadable(Identity("train", "default"), "it is no object"), self.now)

    def exist(self, *states: str, name: str = "m") -> None:
        spec = {"schedulingGroup": {"podGroupName": "train"}}
        for number, state in enumerate(states):
            self.show(self.make_pod(f"{name}-{number}", None, node="n1", spec=spec, **STATES[state]))

    def unmark(self, name: str) -> None:
        self.show(changed(self.pods[name], status={"conditions": []}))


@pytest.fixture
def scene(make_scene: MakeScene) -> GroupScene:
    scene = make_scene(MarkedScene)
    play(scene, "nodes n1 n2 n3")
    return scene


@pytest.mark.parametrize("mode", ["PodGroup", "all"])
def test_the_rest_of_an_order_is_evicted(scene: GroupScene, mode: str) -> None:
    """The others are gone already, and fewer than the group needs are left; after the patience, and told why."""
    play(scene, f"gang train 2 mode={mode} | exist marked | wait 2.5*22 | evicts | wait 5*3 | evicts m-0")
    reason = "group train: it may only be disrupted as a whole, and its preemption was interrupted"
    play(scene, f"evict > Preempted evicted: {reason}")
    play(scene, "terminate m-0 | wait 2.5*96 | evicts")


@pytest.mark.parametrize(("disruption", "steps"), [("", "30 | evicts m-0"), (',"disruption":"pod"', "96 | evicts")])
def test_the_rest_of_a_group_by_annotation_is_evicted(scene: GroupScene, disruption: str, steps: str) -> None:
    """Unless its members go one by one."""
    group = {names.GROUP: f'{{"name":"train","min":2{disruption}}}'}
    scene.show(scene.make_pod("m-0", None, node="n1", annotations=group, **STATES["marked"]))
    play(scene, f"wait 2.5*{steps}")


@stories(
    {
        "enough are left, though all were to go": "gang train 2 mode=all | exist leaving marked marked",
        "the crash came before the first deletion": "gang train 2 mode=all | exist marked marked marked",
        "no member is deleted before all are marked": "gang train 3 mode=all | exist marked bare",
        "members go one by one by default": "gang train 2 | exist leaving marked",
        "members go one by one": "gang train 2 mode=Pod | exist leaving marked",
        "members go one by one (v1beta1)": "gang train 2 mode=single | exist leaving marked",
        "marked by another scheduler": "gang train 2 mode=all | exist foreign",
        "marked by an eviction": "gang train 2 mode=all | exist evicted",
        "a member leaves for another reason": """
            gang train 2 mode=all | exist marked marked | wait 2.5*28 | evicts | terminate m-1""",
        "the deletion was under way": """
            gang train 2 mode=all | exist marked | wait 2.5*12 | evicts | terminate m-0""",
        "the mark is taken back after a refused deletion": """
            gang train 2 mode=all | exist marked | wait 2.5*12 | evicts | unmark m-0""",
        "its controller made others": """
            gang train 3 mode=all | exist leaving marked | wait 2.5*4 | evicts | exist bare bare name=new""",
        "a new group of the same name has no mark": """
            gang train 2 mode=all | exist leaving leaving leaving | wait 2.5*4 | evicts | delete m-0..2 | exist bare
            name=new""",
        "without its PodGroup nobody knows how the group goes": """
            gang train 2 mode=all | exist leaving marked | gang train""",
        # For victims it counts as one that goes as a whole, so that nobody of it goes alone.
        "nor where it cannot be read": "gang train 2 mode=all | exist leaving marked | unreadable",
    }
)
def test_a_group_goes_on(scene: GroupScene, story: str) -> None:
    play(scene, f"{story} | wait 2.5*96 | evicts")


def test_a_refused_eviction_is_tried_again(scene: GroupScene) -> None:
    """A disruption budget may forbid it for a while."""
    play(scene, "gang train 2 mode=all | exist marked | wait 2.5*25 | evicts m-0 | refuse_evictions")
    play(scene, "wait 2.5*22 | evicts | wait 2.5*8 | evicts m-0")


def test_the_machine_wakes_up_for_it(scene: GroupScene) -> None:
    """No event has to come: `next_due` leads to the eviction in time."""
    play(scene, "gang train 2 mode=all | exist marked")
    for _ in range(50):
        due = scene.machine.next_due()
        assert due is not None
        play(scene, f"wait {max(due - scene.now, 0.0)}")
        if scene.evictions:
            break
    assert PATIENCE_S <= scene.now <= PATIENCE_S + 10.0


def test_hundreds_are_evicted_some_at_a_time(scene: GroupScene) -> None:
    play(scene, f"gang train 512 mode=all | exist {'marked ' * 300}")
    most, evicted = 0, list[str]()
    for _ in range(40):
        play(scene, "wait 2.5")
        most = max(most, len(scene.evictions))
        evicted += [one.pod.metadata.name for one in scene.evictions]
    assert most == 64
    assert sorted(evicted) == sorted(scene.pods)
