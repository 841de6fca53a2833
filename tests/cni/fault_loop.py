"""Break an ADD at every call that leaves the process, by an error and by SIGKILL, and look what stays behind.

    python fault_loop.py SETTING.json [FIRST STEP]

Run inside the host's network namespace (or the lab), as a program: each try is a forked child, so that one that is
killed takes nothing with it. SETTING has the CNI environment and configuration, the VF table's path (null: the kernel's
own PFs), and the folders of ledger and IPAM. FIRST and STEP share the calls among several runs: of STEP 4, one breaks
the calls 1, 5, 9, … Prints one JSON object: which calls were broken, of which kind they are, and what each left.
"""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from cni import netns, podlink, rtnetlink
from cni.calls import answer
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
        self.calls = 0
        self._told = told

    def strike(self, kind: str) -> None:
        self.calls += 1
        if self.calls != self.number:
            return
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


def broken_add(setting: Setting, number: int, *, kill: bool, told: int) -> int:
    """Make an ADD that breaks at one call; some calls may fail without the ADD failing."""
    fault = Fault(number, kill=kill, told=told)
    fault.install()
    environment = {**setting["environment"], "CNI_COMMAND": "ADD"}
    done = answer(environment, json.dumps(setting["conf"]).encode(), lambda: FaultyPort(port_of(setting), fault))
    if fault.calls < number:
        return NOT_REACHED
    return REACHED if done.status else SUCCEEDED


def left_behind(
    setting: Setting, before: dict[str, Any], numbers: Iterator[int], *, kill: bool
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number and kind of each broken call, with what was not as before after it and the DEL that follows."""
    for number in numbers:
        heard, told = os.pipe()
        reached = in_child(lambda: broken_add(setting, number, kill=kill, told=told))  # noqa: B023 - runs at once
        os.close(told)
        kind = os.read(heard, 64).decode()
        os.close(heard)
        if reached == NOT_REACHED:
            in_child(lambda: run(setting, "DEL"))
            return
        assert reached != CRASHED, f"the program of call {number} crashed"
        wrong = [f"after ADD: {name}" for name in differing(before, state(setting))] if reached == REACHED else []
        if kill and number // 2 % 2:
            wrong += [] if in_child(lambda: run(setting, "ADD")) == 0 else ["the next ADD failed"]
        wrong += [] if in_child(lambda: run(setting, "DEL")) == 0 else ["DEL failed"]
        wrong += [f"after DEL: {name}" for name in differing(before, state(setting))]
        yield number, kind, wrong


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != now[name]]


def main() -> int:
    log.set_up("fault-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    first, step = (int(word) for word in sys.argv[2:]) if len(sys.argv) > 2 else (1, 1)
    before = state(setting)
    broken: dict[str, list[int]] = {"error": [], "kill": []}
    kinds: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for name, numbers in broken.items():
        for number, kind, found in left_behind(setting, before, count(first, step), kill=name == "kill"):
            numbers.append(number)
            kinds[kind] += 1
            if found:
                wrong[f"{name} {number} {kind}"] = found
    calls = {name: len(numbers) for name, numbers in broken.items()}
    print(json.dumps({"broken_calls": calls, "numbers": broken, "kinds": kinds, "left_behind": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
