"""With ``--end-half-groups`` a group that stays half placed is ended; without it, it waits for ever."""

import pytest

from scheduler.cycle.instructions import Report
from tests.scheduler.pending.groups.conftest import MakeStory

# One of three members is lost with its node, and there is no room for the member that is made in its place.
PLACED = "nodes n1 n2 n3; group train*3 {kind}; wait 0 -> train*3"
HALF = f"{PLACED}; lose train-2; gone train-2; member again group=train; wait 1; evicts"
ENDED = "evicts train-0 train-1"


@pytest.mark.parametrize(
    ("text", "kind", "after_s"),
    [
        pytest.param(f"wait 59; evicts; wait 2; {ENDED}", "", 60.0, id="after the time, not before"),
        pytest.param(
            "wait 59; nodes n4; wait 1 -> again; wait 120; evicts; lose again; gone again; member next group=train; "
            f"wait 1 59; evicts; wait 2; {ENDED}",
            "",
            60.0,
            id="a group that was completed in time has its time again",
        ),
        pytest.param(
            f"wait 61; refuse; wait 30; evicts; wait 31; {ENDED}", "", 60.0, id="a minute after a refused eviction"
        ),
        # A pod that is being deleted does not count as placed.
        pytest.param("wait 61; delete train-0 train-1; wait 120; evicts", "", 60.0, id="not again while members end"),
        pytest.param("wait 6000; evicts", "", 0.0, id="never without the option"),
        pytest.param(
            f"wait 59; podgroup train; wait 120; evicts; podgroup train 3; wait 1 59; evicts; wait 2; {ENDED}",
            "kind=PodGroup",
            60.0,
            id="not while nobody knows how many it needs; then the time begins again",
        ),
    ],
)
def test_the_placed_members_of_a_group_that_stays_half_are_evicted(
    make_story: MakeStory, text: str, kind: str, after_s: float
) -> None:
    story = make_story(end_half_s=after_s)
    if kind:
        story.play("podgroup train 3")
    story.play(f"{HALF.format(kind=kind)}; {text}")


def test_evicted_members_are_told_why_under_a_name_of_its_own(make_story: MakeStory) -> None:
    story = make_story(end_half_s=60.0)
    story.play(f"{HALF.format(kind='')}; wait 61")
    (report,) = story.machine.finished(story.evictions[0], "evicted", story.now)
    assert isinstance(report, Report)
    message = "evicted: group train: only 2 of at least 3 members have been placed for 60 s"
    assert (report.reason, report.message) == ("HalfGroup", message)


def test_a_group_that_ends_member_by_member_is_no_half_group(make_story: MakeStory) -> None:
    """None of its members waits."""
    make_story(end_half_s=60.0).play(
        f"{PLACED.format(kind='')}; phase Failed train-0; gone train-1; wait 0 120; evicts"
    )
