"""`python -m bench.hostile`: an attack on the real programs is carried out and judged, and the judge can find harm."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from bench.hostile.__main__ import LONGEST_S, MOST_MIB, Outcome, main, run
from bench.hostile.attack import ATTACKS, Attack
from bench.hostile.innocents import Longest
from bench.hostile.stage import Stage

_STOPPED_S = 2 * LONGEST_S


@asynccontextmanager
async def _stopped(stage: Stage, program: str = "scheduler") -> AsyncIterator[None]:
    """Let a program stand still for longer than anything may."""
    pid = stage.processes.pid(program)
    os.kill(pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(_STOPPED_S, os.kill, pid, signal.SIGCONT)
    yield


async def test_an_attack_is_carried_out_and_one_that_harms_is_found() -> None:
    """An inventory, or annotations, cost nobody anything; a program that stands still is seen by all it serves."""
    hostile = replace(ATTACKS["inventory-overlapping"], lasts_s=0.0)
    fatal = Attack("stopped", "somebody stops the scheduler", "scheduler", 0.0, _stopped)
    tenants = replace(ATTACKS["others-networks"], lasts_s=1.0)
    on_node = replace(ATTACKS["shim-annotations"], lasts_s=0.0)
    fatal_on_node = Attack("stopped", "somebody stops the shim", "shim", 0.0, partial(_stopped, program="shim"))
    harmless, apart, harmful, node, harmed = await run([hostile, tenants, fatal, on_node, fatal_on_node], nodes=10)
    assert harmless.harmless(by_cpu=True)
    assert apart.reached == ()
    assert apart.harmless(by_cpu=True)
    assert node.harmless(by_cpu=True)
    assert node.longest.keys() == {"status", "sandbox", "container", "services"}
    assert {name for name, longest in harmed.longest.items() if longest.wall_s > LONGEST_S} == node.longest.keys()
    assert not harmful.harmless(by_cpu=False)
    assert {name for name, longest in harmful.longest.items() if longest.wall_s > LONGEST_S} == {"pod", "probe"}


def test_memory_that_is_left_is_harm() -> None:
    """Also where nobody waited; and so is what is another tenant's."""
    quick = {"pod": Longest(0.1, 0.1, 1)}
    assert Outcome(quick, MOST_MIB, 900.0).harmless(by_cpu=False)
    assert not Outcome(quick, MOST_MIB + 1, 900.0).harmless(by_cpu=False)
    assert not Outcome({"pod": Longest(0.1, LONGEST_S + 1, 1)}, 0.0, 0.0).harmless(by_cpu=True)
    assert not Outcome(quick, 0.0, 0.0, reached=("pod a/b has a VF of network 'c'",)).harmless(by_cpu=False)


def test_attacks_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that none has is wrong usage."""
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ATTACKS)
    with pytest.raises(SystemExit, match="2"):
        main(["nonsense"])
