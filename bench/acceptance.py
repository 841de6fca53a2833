"""rit-k8s-rdma's own acceptance test: RDMA traffic between two pods stays under the limit of their VFs.

    python -m bench.acceptance [--json] [--rates 100 20] [--seconds 4]      in the lab kernel
    python -m bench.acceptance --here [--pf NAME] [...]                     on this machine, as root

Two pods with one VF each, in exclusive RDMA mode; what `ib_write_bw` sends from one to the other stays within 15 % over
max_tx_rate, and is unlimited without one. Exit status 0, 1 if it is not so, 2 if it cannot be measured. Source:
rit-k8s-rdma's install.md, "Test connectivity between two pods".
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.host.lab import MISSING, find_lab
from bench.host.rdma_pods import first_pf, two_pods
from cli.node.hardware.commands import CommandError
from cli.node.hardware.plan.rates import OVER_PERCENT, rate_fault
from cli.node.hardware.plan.stream import stream_for
from cli.node.hardware.traffic import perftest

_LAB_S = 240
# Traffic without a limit is sized for this rate.
_FREE_MBPS = 100_000
_NOT_MEASURED = (
    "bandwidth reservation under competition (min_tx_rate): the lab stores it and does not enforce it",
    "what a VF receives: max_tx_rate limits sending only",
    "hardware: the lab's NIC is a simulation, and mooring was never run on another",
    "containers: the pods are network namespaces that mooring-cni gets from a runtime's ADD and DEL",
)
_PREPARE = """set -e
[ -d '{root}/bench' ] || {{ mkdir -p '{root}' && mount -t hostfs none '{root}' -o '{root}'; }}
cd '{root}'
rdma system set netns exclusive
ip link set eth0 up; ip link set wire0 up
echo 2 >/sys/class/net/eth0/device/sriov_numvfs
for vf in 0 1; do rdma link add rdma$vf type rxe netdev $(ls /sys/class/net/eth0/device/virtfn$vf/net); done
exec {python} -m bench.acceptance --here --pf eth0 --json --seconds {seconds} --rates {rates}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: the VFs' limit and what was measured, in Mb/s, and what is wrong with it."""

    max_tx_rate: int | None
    mbps: float
    fault: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured where; ``not_measured`` is what the result does not cover."""

    pf: str
    driver: str
    kernel: str
    over_percent: int
    runs: tuple[Run, ...]
    passed: bool
    not_measured: tuple[str, ...] = _NOT_MEASURED


def judged(limit_mbps: int | None, mbps: float, limits_mbps: Sequence[int]) -> Run:
    """Evaluate one measurement among those at ``limits_mbps``."""
    return Run(limit_mbps, mbps, rate_fault(limit_mbps, mbps, limits_mbps))


def measure(pf: str, limits_mbps: Sequence[int], seconds: int) -> Report:
    """Measure without a limit, then at each; raise CommandError if that cannot be done."""
    mode = subprocess.run(("rdma", "system", "show"), capture_output=True, text=True, check=False).stdout
    if "netns exclusive" not in mode:
        raise CommandError(f"the RDMA stack is not in exclusive mode but {mode.strip() or 'absent'!r}")
    runs = []
    for limit in (None, *limits_mbps):
        with two_pods(pf, limit) as pair:
            (mbps,) = perftest.measure([pair], stream_for(limit or _FREE_MBPS, seconds)).mbps
            runs.append(judged(limit, mbps, limits_mbps))
    driver = (Path("/sys/class/net") / pf / "device/driver").readlink().name
    passed = all(run.fault is None for run in runs)
    return Report(pf, driver, platform.release(), OVER_PERCENT, tuple(runs), passed)


def in_lab(lab: Path, limits_mbps: Sequence[int], seconds: int) -> Report:
    """Run this program inside the lab kernel and return its report."""
    rates = " ".join(map(str, limits_mbps))
    root = Path(__file__).resolve().parent.parent
    script = _PREPARE.format(root=root, python=sys.executable, seconds=seconds, rates=rates)
    command = (str(lab), "-t", str(_LAB_S), "-")
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=2 * _LAB_S, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
    if line is None:
        raise CommandError((done.stdout + done.stderr).strip()[-1000:])
    document = json.loads(line)
    runs = tuple(Run(**run) for run in document.pop("runs"))
    return Report(**{**document, "runs": runs, "not_measured": tuple(document["not_measured"])})


def table(report: Report) -> str:
    """Return the report as a table."""
    lines = [
        f"two pods, one VF of {report.pf} each (driver {report.driver}, kernel {report.kernel}), exclusive RDMA mode",
        "",
        f"{'max_tx_rate':>12} {'measured':>12} {'of the limit':>13}",
    ]
    for run in report.runs:
        limit = "none" if run.max_tx_rate is None else f"{run.max_tx_rate} Mb/s"
        share = "" if run.max_tx_rate is None else f"{100 * run.mbps / run.max_tx_rate:.0f} %"
        lines.append(f"{limit:>12} {f'{run.mbps:.1f} Mb/s':>12} {share:>13}   {run.fault or 'ok'}")
    verdict = "held" if report.passed else "BROKEN"
    lines += ["", f"{verdict}: at most {100 + report.over_percent} % of max_tx_rate, and free without one", ""]
    return "\n".join([*lines, *(f"not measured: {what}" for what in report.not_measured)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.acceptance", description=__doc__.partition("\n")[0])
    parser.add_argument("--here", action="store_true", help="measure on this machine, not in the lab")
    parser.add_argument("--pf", help="with --here: the PF whose VFs 0 and 1 are used (default: the first with two)")
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 20], help="limits in Mb/s (default 100 20)")
    parser.add_argument("--seconds", type=int, default=4, help="how long each run counts (default 4)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, not a table")
    options = parser.parse_args()
    try:
        if options.here:
            report = measure(options.pf or first_pf(), options.rates, options.seconds)
        elif (lab := find_lab(os.environ)) is None:
            raise CommandError(f"{MISSING}; or measure on this machine with --here")
        else:
            report = in_lab(lab, options.rates, options.seconds)
    except (CommandError, OSError, subprocess.TimeoutExpired) as missing:
        print(f"bench.acceptance: {missing}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(report)) if options.json else table(report))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
