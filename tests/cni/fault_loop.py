"""Break an ADD at every call that leaves the process, by an error and by SIGKILL, and look what stays behind.

    python fault_loop.py SETTING.json

Run inside the host's network namespace (or the lab), as a program: each try is a forked child, so that one that is
killed takes nothing with it. SETTING has the CNI environment and configuration, the VF table's path (null: the kernel's
own PFs), and the folders of ledger and IPAM. Prints one JSON object: how many calls were broken, and what each left.
"""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cni import ipam, netlink
from cni.calls import answer
from cni.ledger import Ledger
from mooring import log
from mooring.settings import VfSettings
from mooring.vfport import RtnetlinkVfPort, VfPort

NETLINK = (
    "set_up",
    "rename",
    "set_mac",
    "set_mtu",
    "move",
    "add_address",
    "add_route",
    "add_altnames",
    "find",
    "links",
)
REACHED, NOT_REACHED = 0, 3
Setting = dict[str, Any]


class Fault:
    """Count the calls at the system's edge and break the one with the given number."""

    def __init__(self, number: int, *, kill: bool) -> None:
        self.number = number
        self.kill = kill
        self.calls = 0

    def strike(self) -> None:
        self.calls += 1
        if self.calls == self.number and self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == self.number:
            raise OSError(errno.EIO, "planted fault")

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*arguments: Any, **named: Any) -> Any:
            self.strike()
            return function(*arguments, **named)

        return broken

    def install(self) -> None:
        for name in NETLINK:
            setattr(netlink, name, self.before(getattr(netlink, name)))
        ipam.add = self.before(ipam.add)
        for method in ("write", "read", "pod"):
            setattr(Ledger, method, self.before(getattr(Ledger, method)))


class FaultyPort:
    """The port with the fault in front of it."""

    def __init__(self, port: VfPort, fault: Fault) -> None:
        self._port = port
        self._fault = fault

    def read(self, pf: str, vf: int) -> VfSettings:
        self._fault.strike()
        return self._port.read(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        self._fault.strike()
        return self._port.read_all(pf)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self._fault.strike()
        self._port.write(pf, vf, settings)


def port_of(setting: Setting) -> VfPort:
    if setting["vf_table"] is None:
        return RtnetlinkVfPort()
    from devcluster.hosts.vftable import VfTable

    return VfTable(Path(setting["vf_table"]))


def state(setting: Setting) -> dict[str, Any]:
    """Return what must be as before: links, settings, ledger, addresses."""
    shown = subprocess.run(("ip", "-d", "-j", "link", "show"), capture_output=True, check=True).stdout
    kept = ("ifname", "address", "mtu", "flags", "altnames", "vfinfo_list", "parentdev")
    links = [{name: link.get(name) for name in kept} for link in json.loads(shown)]
    table = Path(setting["vf_table"]).read_text() if setting["vf_table"] else None
    ledger = sorted(path.name for path in Path(setting["ledger"]).glob("*.json"))
    addresses = sorted(
        path.name for path in Path(setting["ipam"]).rglob("*") if path.name[:1].isdigit() and path.is_file()
    )
    ordered = sorted(links, key=lambda link: str(link["ifname"]))
    return {"links": ordered, "table": table, "ledger": ledger, "addresses": addresses}


def in_child(work: Callable[[], int]) -> int:
    """Run ``work`` in a forked child; return its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(setting: Setting, command: str) -> int:
    """Make an ordinary call without a fault; return its exit status."""
    environment = {**setting["environment"], "CNI_COMMAND": command}
    return answer(environment, json.dumps(setting["conf"]).encode(), lambda: port_of(setting)).status


def broken_add(setting: Setting, number: int, *, kill: bool) -> int:
    fault = Fault(number, kill=kill)
    fault.install()
    environment = {**setting["environment"], "CNI_COMMAND": "ADD"}
    answer(environment, json.dumps(setting["conf"]).encode(), lambda: FaultyPort(port_of(setting), fault))
    return REACHED if fault.calls >= number else NOT_REACHED


def left_behind(setting: Setting, before: dict[str, Any], *, kill: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each broken call, with what was not as before after it and the DEL that follows."""
    number = 1
    while True:
        reached = in_child(lambda: broken_add(setting, number, kill=kill))  # noqa: B023 - it runs before the next turn
        if reached == NOT_REACHED:
            in_child(lambda: run(setting, "DEL"))
            return
        wrong = [] if kill else [f"after ADD: {name}" for name in differing(before, state(setting))]
        if kill and number % 2:
            wrong += [] if in_child(lambda: run(setting, "ADD")) == 0 else ["the next ADD failed"]
        wrong += [] if in_child(lambda: run(setting, "DEL")) == 0 else ["DEL failed"]
        wrong += [f"after DEL: {name}" for name in differing(before, state(setting))]
        yield number, wrong
        number += 1


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != now[name]]


def main() -> int:
    log.set_up("fault-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    before = state(setting)
    counts: dict[str, int] = {}
    wrong: dict[str, list[str]] = {}
    for kill in (False, True):
        name = "kill" if kill else "error"
        for number, found in left_behind(setting, before, kill=kill):
            counts[name] = number
            if found:
                wrong[f"{name} {number}"] = found
    print(json.dumps({"broken_calls": counts, "left_behind": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
