"""When the kubelet is led past the shim: sequences of answers, a second each."""

import pytest

from cri_shim.plan.bypass_rule import BypassRule


def seconds_until_due(shim: str, runtime: str = "") -> int | None:
    """Return after how many seconds it is due, None if it is not; ``.`` answers, ``x`` does not."""
    rule = BypassRule(0)
    for second, (its, runtimes) in enumerate(zip(shim, runtime.ljust(len(shim), "."), strict=True), start=1):
        if rule.is_due(shim_answers=its == ".", runtime_answers=runtimes == ".", now_s=second):
            return second
    return None


@pytest.mark.parametrize(
    ("shim", "runtime", "due"),
    [
        ("x" * 40, "", 15),
        ("." * 20 + "x" * 40, "", 35),
        ("." * 20 + "x" * 14 + "." * 10, "", None),
        ("x" * 40, "x" * 40, None),
        ("x" * 40, "x" * 10, 25),
        ("x" * 40, "." * 14 + "x" + "." * 25, 30),
    ],
    ids=["never-served", "stops", "restarts-in-time", "runtime-is-down", "runtime-is-later", "runtime-fails-once"],
)
def test_a_shim_is_bypassed_once_it_has_not_served_for_15_s(shim: str, runtime: str, due: int | None) -> None:
    assert seconds_until_due(shim, runtime) == due


def test_a_shim_that_ends_again_and_again_is_bypassed() -> None:
    """Seconds of answers between its ends do not count as service; the moment is one at which it does not answer."""
    assert seconds_until_due("." * 20 + "xxx..." * 10) in range(35, 41)


def test_restarts_that_are_far_enough_apart_are_no_failure() -> None:
    assert seconds_until_due(("." * 8 + "x" * 5) * 20) is None


def test_it_counts_anew_after_a_bypass() -> None:
    rule = BypassRule(0)
    rule.restart(100)
    assert not rule.is_due(shim_answers=False, runtime_answers=True, now_s=114)
    assert rule.is_due(shim_answers=False, runtime_answers=True, now_s=115)
