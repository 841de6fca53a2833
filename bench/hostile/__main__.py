"""Run attacks one after the other, and print what an innocent waited and what memory was left.

    python -m bench.hostile [--nodes 1000] [--cpu] [NAME ...]
    python -m bench.hostile --list

Before each attack the program that is attacked is started again. Innocents go on from before the attack until after it:
see `bench.hostile.innocents`. "left" is the program's resident memory after what the attacker can delete is deleted and
the program is at rest, less that before; "most" is the most meanwhile; "load" is the machine's of the last minute. Exit
status 1 if an innocent waited more than 1 s, more than 64 MiB were left, or the attacker got what is another
tenant's. With ``--cpu`` the CPU that the program used during a wait counts in place of the wait: on a machine whose
cores others use too, that is what the attack costs.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.hostile import attacks
from bench.hostile.attack import ATTACKS, Attack
from bench.hostile.innocents import Longest, watched
from bench.hostile.stage import Stage

LONGEST_S, MOST_MIB = 1.0, 64.0
# Answers for each innocent before the first memory is read, and after the attack's end.
_WARM, _AFTER = 3, 2
_SAMPLE_S = 0.1
__all__ = ["attacks"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen: the longest wait of each innocent, and memory in MiB."""

    longest: dict[str, Longest]
    left_mib: float
    most_mib: float
    # Processes that wanted a core meanwhile, on average: what a wait by the clock is to be read with.
    load: float = 0.0
    # What the attacker got that is another tenant's.
    reached: tuple[str, ...] = ()

    def harmless(self, *, by_cpu: bool) -> bool:
        waits_s = (longest.cpu_s if by_cpu else longest.wall_s for longest in self.longest.values())
        return not self.reached and max(waits_s) <= LONGEST_S and self.left_mib <= MOST_MIB


async def carry_out(stage: Stage, attack: Attack) -> Outcome:
    """Attack, and return what others noticed."""
    await stage.restart(attack.program)
    async with watched(stage, attack.program) as warm:
        await warm.reach(_WARM)
    await stage.at_rest(attack.program)
    before_mib = stage.rss_mib(attack.program)
    seen_mib: list[float] = []
    samples = asyncio.create_task(_sample(stage, attack.program, seen_mib))
    async with watched(stage, attack.program) as waits:
        await waits.reach(1)
        async with attack.run(stage):
            await asyncio.sleep(attack.lasts_s)
            await waits.reach(1)
        await waits.reach(_AFTER)
    samples.cancel()
    await asyncio.wait([samples])
    await stage.at_rest(attack.program)
    after_mib = stage.rss_mib(attack.program)
    reached, stage.reached = tuple(stage.reached), []
    most_mib = max(seen_mib) - before_mib
    return Outcome(dict(waits.longest), after_mib - before_mib, most_mib, os.getloadavg()[0], reached)


async def _sample(stage: Stage, program: str, seen_mib: list[float]) -> None:
    """Note a program's memory until cancelled."""
    while True:
        seen_mib.append(stage.rss_mib(program))
        await asyncio.sleep(_SAMPLE_S)


def report(attack: Attack, outcome: Outcome, *, by_cpu: bool) -> str:
    """Return an attack's line."""
    each = sorted(outcome.longest.items())
    waits = "".join(f" {name:>9} {longest.wall_s:6.2f} {longest.cpu_s:6.2f}" for name, longest in each)
    verdict = "harmless" if outcome.harmless(by_cpu=by_cpu) else "HARMFUL"
    reached = "".join(f"\n    {text}" for text in outcome.reached)
    sizes = f"{outcome.left_mib:8.1f} {outcome.most_mib:7.1f} {outcome.load:6.1f}"
    return f"  {attack.name:28} {sizes}  {verdict:8}{waits}{reached}"


async def run(chosen: Iterable[Attack], nodes: int, *, by_cpu: bool = False) -> list[Outcome]:
    """Carry out attacks on one cluster, and print each outcome."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mooring-hostile-") as root:
        async with Stage(Path(root), nodes).running() as stage:
            for attack in chosen:
                outcomes.append(await carry_out(stage, attack))
                print(report(attack, outcomes[-1], by_cpu=by_cpu), flush=True)
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.hostile", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="attacks to run (default: all)")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the cluster (default 1000)")
    parser.add_argument("--cpu", action="store_true", help="judge by CPU meanwhile: on a busy machine")
    parser.add_argument("--list", action="store_true", help="only print the attacks")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in ATTACKS]:
        parser.error(f"no attack is named {', '.join(unknown)}; --list prints them")
    chosen = [ATTACKS[name] for name in options.names or ATTACKS]
    if options.list:
        for attack in chosen:
            print(f"  {attack.name:28} {attack.what}")
        return 0
    # However it is ended, also by `timeout`, no program is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"{os.cpu_count()} cores, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}; {options.nodes} nodes")
    print(f"  {'':28} {'left MiB':>8} {'most':>7} {'load':>6}  {'':8} who: longest wait, most CPU meanwhile, s")
    outcomes = asyncio.run(run(chosen, options.nodes, by_cpu=options.cpu))
    return 0 if all(outcome.harmless(by_cpu=options.cpu) for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
