"""Break an ADD or a DEL at each call that leaves the process, by an error and by SIGKILL, and look what stays behind.

    python fault_loop.py SETTING.json [FIRST STEP]

Run inside the host's network namespace (or the lab), as a program: each try is a forked child, so that one that is
killed takes nothing with it. SETTING has the CNI environment and configuration, the VF table's path (null: the kernel's
own PFs), the folders of ledger and IPAM, and which ``command`` to break. FIRST and STEP share the calls among several
runs: of STEP 4, one breaks the calls 1, 5, 9, … Prints one JSON object: which calls were broken, of which kind they
are, and what each left.

What follows a broken ADD is DEL, or the next ADD and DEL. What follows a broken DEL is the runtime's second one, or the
next ADD, or the reconciler, in turn.
"""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from cni import netns, podlink, rtnetlink
from cni.calls import BOOT_ID, answer
from cni.conf import RUN, SYSFS
from cni.ledger import Ledger
from cni.metrics import Metrics
from cni.node import Node
from cni.reconcile import Reconciler
from cni.sysfs import Sysfs
from mooring import log, nldev
from mooring.settings import VfSettings
from mooring.vfport import RtnetlinkVfPort, VfPort

# Where the program ends and the system begins: RTNETLINK, NETLINK_RDMA, entering a namespace, announcing an address,
# other programs (IPAM), locks, and the steps of a file's life. The port to the PFs has its own class below.
EDGE: tuple[tuple[Any, str], ...] = (
    *((rtnetlink, "exchange"), (nldev, "exchange"), (netns, "enter"), (podlink, "announce"), (subprocess, "run")),
    *((fcntl, "flock"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "read_text"), (Path, "write_text")),
)
REACHED, NOT_REACHED, SUCCEEDED, CRASHED = 0, 3, 4, 5
Setting = dict[str, Any]


class Fault:
    """Count the calls at the system's edge and break the one with the given number; ``kind`` is what it was."""

    def __init__(self, number: int, *, kill: bool, told: int) -> None:
        self.number = number
        self.kill = kill
        self.reached = False
        self._told = told
        # Counts whole also for calls of several threads.
        self._calls = count(1)

    def strike(self, kind: str) -> None:
        if next(self._calls) != self.number:
            return
        self.reached = True
        os.write(self._told, kind.encode())
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.EIO, "planted fault")

    def before(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*arguments: Any, **named: Any) -> Any:
            self.strike(kind)
            return function(*arguments, **named)

        return broken

    def install(self) -> None:
        for owner, name in EDGE:
            kind = f"{owner.__name__}.{name}"
            setattr(owner, name, self.before(kind, getattr(owner, name)))


class FaultyPort:
    """The port with the fault in front of it."""

    def __init__(self, port: VfPort, fault: Fault) -> None:
        self._port = port
        self._fault = fault

    def read(self, pf: str, vf: int) -> VfSettings:
        self._fault.strike("port")
        return self._port.read(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        self._fault.strike("port")
        return self._port.read_all(pf)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self._fault.strike("port")
        self._port.write(pf, vf, settings)


def port_of(setting: Setting) -> VfPort:
    if setting["vf_table"] is None:
        return RtnetlinkVfPort()
    from devcluster.hosts.vftable import VfTable

    return VfTable(Path(setting["vf_table"]))


def state(setting: Setting) -> dict[str, Any]:
    """Return what must be as before: links, settings, ledger, addresses."""
    shown = subprocess.run(("ip", "-d", "-j", "link", "show"), capture_output=True, check=True).stdout
    # Without NETLINK_RDMA it fails, and prints the same nothing each time.
    rdma = subprocess.run(("rdma", "-j", "dev", "show"), capture_output=True, check=False).stdout.decode()
    kept = ("ifname", "address", "mtu", "flags", "altnames", "vfinfo_list", "parentdev")
    links = [{name: link.get(name) for name in kept} for link in json.loads(shown)]
    table = Path(setting["vf_table"]).read_text() if setting["vf_table"] else None
    ledger = sorted(path.name for path in Path(setting["ledger"]).glob("*.json"))
    addresses = sorted(
        path.name for path in Path(setting["ipam"]).rglob("*") if path.name[:1].isdigit() and path.is_file()
    )
    ordered = sorted(links, key=lambda link: str(link["ifname"]))
    return {"links": ordered, "rdma": rdma, "table": table, "ledger": ledger, "addresses": addresses}


def in_child(work: Callable[[], int]) -> int:
    """Run ``work`` in a forked child; return its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = CRASHED
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(setting: Setting, command: str) -> int:
    """Make an ordinary call without a fault; return its exit status."""
    environment = {**setting["environment"], "CNI_COMMAND": command}
    return answer(environment, json.dumps(setting["conf"]).encode(), lambda: port_of(setting)).status


def look(setting: Setting) -> int:
    """Look for orphans once, in a process of its own as the server is."""
    conf = setting["conf"]
    places = Sysfs(Path(conf.get("sysfs", SYSFS))), Ledger(Path(setting["ledger"]).parent), Path(conf.get("run", RUN))
    node = Node(*places, port_of(setting), BOOT_ID.read_text().strip())
    Reconciler(lambda: node, Metrics()).look(time.monotonic())
    return 0


def phases(setting: Setting) -> set[str]:
    return {json.loads(path.read_text())["phase"] for path in Path(setting["ledger"]).glob("*.json")}


def broken(setting: Setting, command: str, number: int, *, kill: bool, told: int) -> int:
    """Make a call of the plugin that breaks at one of its own; some may fail without the whole failing."""
    fault = Fault(number, kill=kill, told=told)
    fault.install()
    environment = {**setting["environment"], "CNI_COMMAND": command}
    done = answer(environment, json.dumps(setting["conf"]).encode(), lambda: FaultyPort(port_of(setting), fault))
    if not fault.reached:
        return NOT_REACHED
    return REACHED if done.status else SUCCEEDED


def after_add(setting: Setting, before: dict[str, Any], number: int, reached: int, *, kill: bool) -> list[str]:
    """Say what was wrong after a broken ADD, and after what follows it."""
    wrong = [f"after ADD: {name}" for name in differing(before, state(setting))] if reached == REACHED else []
    if kill and number // 2 % 2:
        wrong += called(setting, "ADD")
    return wrong + called(setting, "DEL")


def after_del(setting: Setting, _before: dict[str, Any], number: int, _reached: int, *, kill: bool) -> list[str]:
    """Say what was wrong with what follows a broken DEL, in turn: another DEL, the next ADD, the reconciler."""
    follows = (number // 4 + kill) % 3
    if follows == 1:
        return called(setting, "ADD") + called(setting, "DEL")
    wrong = []
    if follows == 2:
        in_child(lambda: look(setting))
        # What its DEL had not begun with is a live pod's, for all that anybody knows.
        wrong = [] if phases(setting) <= {"held"} else ["the reconciler left what it should have given back"]
    return wrong + (called(setting, "DEL") if follows == 0 or phases(setting) else [])


def called(setting: Setting, command: str) -> list[str]:
    return [] if in_child(lambda: run(setting, command)) == 0 else [f"the next {command} failed"]


def left_behind(
    setting: Setting, before: dict[str, Any], numbers: Iterator[int], *, kill: bool
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number and kind of each broken call, with what was not as before after it and what followed."""
    command = setting.get("command", "ADD")
    after = after_del if command == "DEL" else after_add
    for number in numbers:
        heard, told = os.pipe()
        wrong = called(setting, "ADD") if command == "DEL" else []
        reached = in_child(lambda: broken(setting, command, number, kill=kill, told=told))  # noqa: B023 - runs at once
        os.close(told)
        kind = os.read(heard, 64).decode()
        os.close(heard)
        if reached == NOT_REACHED:
            in_child(lambda: run(setting, "DEL"))
            return
        assert reached != CRASHED, f"the program of call {number} crashed"
        wrong += after(setting, before, number, reached, kill=kill)
        wrong += [f"in the end: {name}" for name in differing(before, state(setting))]
        yield number, kind, wrong


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != now[name]]


def main() -> int:
    log.set_up("fault-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    first, step = (int(word) for word in sys.argv[2:]) if len(sys.argv) > 2 else (1, 1)
    before = state(setting)
    tried: dict[str, list[int]] = {"error": [], "kill": []}
    kinds: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for name, numbers in tried.items():
        for number, kind, found in left_behind(setting, before, count(first, step), kill=name == "kill"):
            numbers.append(number)
            kinds[kind] += 1
            if found:
                wrong[f"{name} {number} {kind}"] = found
    calls = {name: len(numbers) for name, numbers in tried.items()}
    print(json.dumps({"broken_calls": calls, "numbers": tried, "kinds": kinds, "left_behind": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
