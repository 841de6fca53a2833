"""Compare devcluster's table of VF settings with the vendor's driver above the modelled chip; print each difference.

    python -m bench.nic_differences [--link ethernet|infiniband] [--seed N] [--random 40] [--only WORDS]

Both get the same values, orders, events and refused commands (`bench.nic.cases`). The driver is the unmodified
mlx5_core of Linux 6.12 in the lab. Exit status 1 if anything differs, 2 if there is no lab or no such case.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from bench.host.lab import MISSING, find_lab
from bench.nic import on_table
from bench.nic.cases import CHOICES, FIRST, matrix, of_one_vf, random_cases
from bench.nic.steps import TOTAL_VFS, Case, Seen, cases_to_json, steps_from_json
from cli.node.hardware.plan import recorded
from cli.node.hardware.vf_life import RECORDING
from mooring.names import LinkType
from mooring.nic.settings import SETTING_NAMES, VfSettings

_LAB_S = 580
# Most of the time of a case is waited for.
_BOOTS, _CASES_A_BOOT = 3, 40
_ROOT = Path(__file__).resolve().parents[1]
_IN_LAB = r"""set -e
[ -d '{root}/bench' ] || {{ mkdir -p '{root}' && mount -t hostfs none '{root}' -o '{root}'; }}
cd '{root}'
ip link set {pf} up
cat >/tmp/cases <<'END'
{cases}
END
{python} -m bench.nic.on_driver /tmp/cases /tmp/outcomes
cat /tmp/outcomes
"""


def on_driver(link: LinkType, cases: Sequence[Case], folder: Path) -> list[list[Seen]]:
    """Run the cases on the driver, in a few kernels at once, and return what is seen; ``folder`` is for scripts."""
    lab = find_lab(os.environ)
    parts = [cases[start : start + _CASES_A_BOOT] for start in range(0, len(cases), _CASES_A_BOOT)]
    with ThreadPoolExecutor(_BOOTS) as pool:
        return [each for part in pool.map(lambda part: _boot(link, part, folder, lab), parts) for each in part]


def _boot(link: LinkType, cases: Sequence[Case], folder: Path, lab: Path | None) -> list[list[Seen]]:
    """Run cases in one kernel; raise RuntimeError with its output if that fails."""
    given = json.dumps(cases_to_json(cases))
    is_ib = link == "infiniband"
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as script:
        script.write(_IN_LAB.format(root=_ROOT, python=sys.executable, cases=given, pf="ib0" if is_ib else "eth0"))
    kernel = f"mlx5chip.npf=1 mlx5chip.totalvfs={TOTAL_VFS} mlx5chip.ib={int(is_ib)}"
    command = [str(lab), "-t", str(_LAB_S), "-a", kernel, script.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LAB_S + 10)
    if done.returncode:
        raise RuntimeError(f"the lab ended with status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    outcomes: list[list[Seen]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def differences(cases: Sequence[Case], table: Sequence[list[Seen]], driver: Sequence[list[Seen]]) -> Iterator[str]:
    """Yield a line for the first step of each case after which something differs: all that differs then."""
    for case, ours, theirs in zip(cases, table, driver, strict=True):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            names = [name for name in {**our, **their} if our.get(name) != their.get(name)]
            if names:
                steps = "; ".join(map(str, case.steps[: number + 1]))
                values = ", ".join(f"{name}: table {our.get(name)!r}, driver {their.get(name)!r}" for name in names)
                yield f"{case.name}: {steps}\n    {values}"
                break


def record() -> None:
    """Write what the driver does with one VF, for the hardware test to compare a card with."""
    cases = [*of_one_vf()]
    together = Case("one VF", tuple(step for case in cases for step in case.steps))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (outcomes,) = on_driver("ethernet", [together], Path(folder))
    RECORDING.write_text(recorded.dump_recording(recording_of(cases, iter(outcomes))))


def recording_of(cases: Sequence[Case], driver: Iterator[Seen]) -> recorded.Recording:
    """Return what followed the steps of all cases, one after the other, without what the firmware alone has."""
    first = VfSettings(**FIRST)
    made = []
    for case in cases:
        _, *outcomes = islice(driver, len(case.steps))
        last = outcomes[-1]
        found = VfSettings(**{name: last[f"vf 0 {name}"] for name in SETTING_NAMES if f"vf 0 {name}" in last})
        answers = [each["answer"] for each in outcomes]
        steps = tuple(VfSettings(**step.settings) for step in case.steps[1:])
        made.append(recorded.Case(steps, recorded.outcome(first, answers, found)))
    return recorded.Recording(first, tuple(made))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.nic_differences", description=__doc__)
    parser.add_argument("--link", choices=list(CHOICES), help="only NICs of this link")
    parser.add_argument("--seed", type=int, default=1, help="of the random sequences (default: 1)")
    parser.add_argument("--random", type=int, default=40, help="how many random sequences (default: 40)")
    parser.add_argument("--record", action="store_true", help=f"only write {RECORDING.name} for the hardware test")
    parser.add_argument("--only", default="", help="only cases whose name has these words")
    options = parser.parse_args(arguments)
    links: Sequence[LinkType] = [options.link] if options.link else [*CHOICES]
    cases = {link: cases_of(link, options.seed, options.random, options.only) for link in links}
    if not any(cases.values()):
        print(f"no case has {options.only!r} in its name", file=sys.stderr)
        return 2
    if find_lab(os.environ) is None:
        print(MISSING, file=sys.stderr)
        return 2
    if options.record:
        record()
        return 0
    return max(compare(link, some) for link, some in cases.items() if some)


def cases_of(link: LinkType, seed: int, randoms: int, only: str) -> list[Case]:
    """Return the cases on one kind of link whose name has these words."""
    return [case for case in (*matrix(link), *random_cases(link, seed, randoms)) if only in case.name]


def compare(link: LinkType, cases: Sequence[Case]) -> int:
    """Compare both on one kind of link and print what differs; return the exit status."""
    # The table syncs its file at each change, which costs nothing in memory.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        table = on_table.run(link, map(steps_from_json, cases_to_json(cases)), Path(folder))
        driver = on_driver(link, cases, Path(folder))
    found = list(differences(cases, table, driver))
    print(*found, sep="\n")
    compared, steps = sum(len(each) for outcomes in driver for each in outcomes), sum(map(len, driver))
    print(f"{link}: {len(cases)} cases, {steps} steps, {compared} values compared: {len(found)} cases differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
