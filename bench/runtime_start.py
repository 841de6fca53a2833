"""Run CNI calls by the Python of a node runtime and by this one, in turns.

    python -m bench.runtime_start FOLDER [--rounds 40]        as root

FOLDER is an unpacked runtime (mooring-<version>-<digest>/). Measured are the start of the executable that CNI calls, a
whole ADD and DEL of one VF with the warm server, and the same without a server, where a call starts the whole program.
The host is simulated, as in `bench.cni`; each Python runs its own Mooring, executable, server and fallback.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.cni import Bench, simulated_host, start_server
from cli.node.runtime import interpreter
from cni.forwarder import render
from cni.kernel import netns
from devcluster.processes import Processes
from devcluster.without_mooring.root import REPOSITORY

RUNTIME, OWN = "runtime", "this Python"
# The program of a simulated host. Mooring itself comes from the packages of the Python that runs this.
_PROGRAM = """\
import sys
sys.path.append({repository!r})
from devcluster.hosts.cni import main
sys.exit(main(sys.argv[1:]))
"""
# Name of the load -> milliseconds by the Python's name.
Times = dict[str, dict[str, list[float]]]


def main() -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="an unpacked runtime")
    parser.add_argument("--rounds", type=int, default=40, help="calls of each kind and Python (default 40)")
    given = parser.parse_args()
    folder = str(given.folder.absolute())
    launchers = {RUNTIME: f"{folder}/python/bin/python3", OWN: sys.executable}
    executables = {RUNTIME: interpreter(folder), OWN: (os.path.realpath(sys.executable),)}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mooring-bench-")))
        processes = Processes(root / "logs")
        stack.callback(processes.stop)
        bench = stack.enter_context(simulated_host(root, processes, pods=1))
        bench.record(0, 1)
        netns.enter(str(bench.layout.netns))
        warm: dict[str, Path] = {}
        cold: dict[str, Path] = {}
        for name, python in launchers.items():
            program = [python, "-I", "-c", _PROGRAM.format(repository=str(REPOSITORY))]
            program += ["--vf-table", str(bench.layout.vftable)]
            socket = bench.layout.run / f"{name.replace(' ', '-')}.sock"
            start_server(bench.layout, processes, name, program, socket)
            for kind, place in ((warm, str(socket)), (cold, "/nowhere")):
                kind[name] = _write(root / f"{name} {len(warm)} {len(cold)}", render(place, program, executables[name]))
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Linux {platform.release()}; median milliseconds")
        print(f"{'':24}{RUNTIME:>12}{OWN:>14}{'ratio':>8}")
        _report(_starts(warm, given.rounds))
        _report(_calls(bench, warm, "with the server", given.rounds))
        _report(_calls(bench, cold, "without a server", given.rounds))
    return 0


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def _report(times: Times) -> None:
    for load, of in times.items():
        ours, own = median(of[RUNTIME]), median(of[OWN])
        print(f"{load:24}{ours:12.1f}{own:14.1f}{ours / own:8.2f}", flush=True)


def _starts(programs: Mapping[str, Path], rounds: int) -> Times:
    """Return the time and the CPU of a call that does nothing."""
    times: Times = defaultdict(lambda: defaultdict(list))
    for name, program in _in_turns(programs, rounds):
        wall, cpu = _start(str(program))
        times["start"][name].append(wall)
        times["start, CPU"][name].append(cpu)
    return times


def _start(program: str) -> tuple[float, float]:
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begun = time.perf_counter()
    child = os.posix_spawn(program, [program, "--version"], {"PATH": "/usr/bin:/bin"}, file_actions=quiet)
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"{program} ended with {status}"
    return (time.perf_counter() - begun) * 1e3, (used.ru_utime + used.ru_stime) * 1e3


def _calls(bench: Bench, programs: Mapping[str, Path], how: str, rounds: int) -> Times:
    """Return the times of ADD and DEL of one VF; the first round is not counted."""
    times: Times = defaultdict(lambda: defaultdict(list))
    for number, (name, program) in enumerate(_in_turns(programs, rounds + 1)):
        bench.settle(slice(1))
        for command in ("ADD", "DEL"):
            took = replace(bench.ours(command, 0)[0], program=str(program)).run()
            if number >= len(programs):
                times[f"{command} {how}"][name].append(took)
    return times


def _in_turns(programs: Mapping[str, Path], rounds: int) -> Sequence[tuple[str, Path]]:
    return [*programs.items()] * rounds


if __name__ == "__main__":
    sys.exit(main())
