"""Break an ADD or a DEL at each call that leaves the process, by an error and by SIGKILL; list what remains.

    python fault_loop.py SETTING.json [FIRST STEP]

Run inside the host's network namespace (or the lab), as a program. A call that is killed is made by a forked child,
every other one by this process, as the CNI server makes them: a fork costs the lab more than an ADD.

SETTING has the CNI environment and configuration, and the VF table's path (null: the kernel's own PFs). It also has the
folders of ledger and IPAM, which ``command`` to break, and which ``part`` of its calls (tests/support/seeds.py). Calls
are numbered within their kind, so that a wait that looks once more does not renumber what comes after it. FIRST and
STEP share them among several runs: of STEP 4, one breaks of each kind the calls 1, 5, 9, … Prints one JSON object. It
has, for each kind, the calls that were broken and those that could not be (the command made fewer this time), and what
each left.

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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cni.kernel import netns, pod_link, rtnetlink
from cni.kernel.sysfs import Sysfs
from cni.server.dispatch import BOOT_ID, Answer, answer
from cni.server.metrics import Metrics
from cni.server.reconcile import Reconciler
from cni.spec.conf import RUN, SYSFS
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.nic import rdma_netlink
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import RtnetlinkVfSettings, VfSettingsApi
from mooring.program import log
from tests.support.seeds import Call, Part

# Where the program ends and the system begins: RTNETLINK, NETLINK_RDMA, entering a namespace, announcing an address,
# other programs (IPAM), locks, and the steps of a file's life. The settings of VFs have their own class below.
EDGE: tuple[tuple[Any, str], ...] = (
    *(
        (rtnetlink, "exchange"),
        (rdma_netlink, "exchange"),
        (netns, "enter"),
        (pod_link, "announce"),
        (subprocess, "Popen"),
    ),
    *((fcntl, "flock"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "read_text"), (Path, "write_text")),
)
_ANNOUNCED_S = 10.0
_LOOKS, _APART_S = 3, 2.0
# The GID of an IPoIB address as `ip` prints it, at the end of its 20 bytes; more than any other address has.
_LASTING_ADDRESS = len("xx:") * 16 - 1
_FIRMWARE = Path(__file__).parents[2] / "lab/inside/firmware.sh"
# What a report shows of an error.
_MOST_TOLD = 2000
REACHED, NOT_REACHED, SUCCEEDED, CRASHED = 0, 3, 4, 5
Setting = dict[str, Any]


class Fault:
    """Count the calls at the system's edge by kind, and break the one that is ``target``: its kind and its number."""

    def __init__(self, target: Call | None, *, kill: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        self.reached = False
        self._target = target
        self._kill = kill
        self._lock = threading.Lock()

    def strike(self, kind: str) -> None:
        with self._lock:
            self.calls[kind] += 1
            if (kind, self.calls[kind]) != self._target:
                return
        self.reached = True
        if self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.EIO, "planted fault")

    def before(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def broken(*arguments: Any, **named: Any) -> Any:
            self.strike(kind)
            return function(*arguments, **named)

        return broken

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand between the program and the system."""
        whole = [(owner, name, getattr(owner, name)) for owner, name in EDGE]
        for owner, name, function in whole:
            setattr(owner, name, self.before(f"{owner.__name__}.{name}", function))
        try:
            yield
        finally:
            for owner, name, function in whole:
                setattr(owner, name, function)


class FaultyVfSettings:
    """The settings of VFs with the fault in front of them, and behind a write: it fails, and is done all the same."""

    def __init__(self, vf_settings: VfSettingsApi, fault: Fault) -> None:
        self._vf_settings = vf_settings
        self._fault = fault

    def read(self, pf: str, vf: int) -> VfSettings:
        self._fault.strike("vf_settings")
        return self._vf_settings.read(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        self._fault.strike("vf_settings")
        return self._vf_settings.read_all(pf)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self._fault.strike("vf_settings")
        self._vf_settings.clear_rates(pf, vfs)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self._fault.strike("vf_settings")
        self._vf_settings.write(pf, vf, settings)
        self._fault.strike("vf_settings.write done")


def vf_settings_of(setting: Setting) -> VfSettingsApi:
    if setting["vf_table"] is None:
        return RtnetlinkVfSettings()
    from devcluster.hosts.vftable import VfTable

    return VfTable(Path(setting["vf_table"]))


def state(setting: Setting) -> dict[str, Any]:
    """Return what must be as before: links, settings, ledger, addresses."""
    shown = subprocess.run(("ip", "-d", "-j", "link", "show"), capture_output=True, check=True).stdout
    # Without NETLINK_RDMA it fails, and prints nothing.
    listed = subprocess.run(("rdma", "-j", "dev", "show"), capture_output=True, check=False).stdout
    rdma = sorted((device["ifname"], device["node_guid"]) for device in json.loads(listed or b"[]"))
    kept = ("ifname", "link_type", "address", "mtu", "flags", "altnames", "vfinfo_list", "parentdev")
    links = [{name: link.get(name) for name in kept} for link in json.loads(shown)]
    for link in links:
        # IPoIB's address starts with the number of a queue pair, another one each time (ipoib_dev_init_default).
        link["address"] = link["address"] and link["address"][-_LASTING_ADDRESS:]
        # The carrier is LOWER_UP; the operational state follows it up to a second later (__linkwatch_run_queue of
        # net/core/link_watch.c), and until then `ip` has NO-CARRIER for a netdev that is up.
        # An InfiniBand port that was made again gets its carrier seconds later, from the subnet manager.
        passing = ("NO-CARRIER", "LOWER_UP") if link["link_type"] == "infiniband" else ("NO-CARRIER",)
        link["flags"] = [flag for flag in link["flags"] if flag not in passing]
    table = Path(setting["vf_table"]).read_text() if setting["vf_table"] else None
    ledger = sorted(path.name for path in Path(setting["ledger"]).glob("*.json"))
    addresses = sorted(
        path.name for path in Path(setting["ipam"]).rglob("*") if path.name[:1].isdigit() and path.is_file()
    )
    ordered = sorted(links, key=lambda link: str(link["ifname"]))
    return {
        "links": ordered,
        "rdma": rdma,
        "table": table,
        "ledger": ledger,
        "addresses": addresses,
        "firmware": firmware(),
    }


def firmware() -> list[str]:
    """Return what the lab's modelled chip has; nothing where there is none."""
    return subprocess.run(("sh", _FIRMWARE), capture_output=True, text=True, check=True).stdout.splitlines()


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
    return call_plugin(setting, command).status


def call_plugin(setting: Setting, command: str) -> Answer:
    """Make an ordinary call without a fault; return its answer."""
    environment = {**setting["environment"], "CNI_COMMAND": command}
    done = answer(environment, json.dumps(setting["conf"]).encode(), lambda: vf_settings_of(setting))
    end_threads()
    return done


def look(setting: Setting) -> None:
    """Look for orphans once."""
    conf = setting["conf"]
    places = Sysfs(Path(conf.get("sysfs", SYSFS))), Ledger(Path(setting["ledger"]).parent), Path(conf.get("run", RUN))
    node = Node(*places, vf_settings_of(setting), BOOT_ID.read_text().strip())
    Reconciler(lambda: node, Metrics()).reconcile(time.monotonic())


def look_until_given_back(setting: Setting) -> None:
    """Look as often as a server does in half a minute: an IPAM plugin that outlived its DEL holds its VF's lock."""
    for _ in range(_LOOKS):
        look(setting)
        if phases(setting) <= {"held"}:
            return
        time.sleep(_APART_S)


def phases(setting: Setting) -> set[str]:
    return {json.loads(path.read_text())["phase"] for path in Path(setting["ledger"]).glob("*.json")}


def faulty(setting: Setting, command: str, fault: Fault) -> int:
    """Make a call of the plugin with the fault between it and the system; return its exit status."""
    environment = {**setting["environment"], "CNI_COMMAND": command}
    with fault.installed():
        done = answer(
            environment, json.dumps(setting["conf"]).encode(), lambda: FaultyVfSettings(vf_settings_of(setting), fault)
        )
        end_threads()
    if done.status:
        print(command, done.text, file=sys.stderr)
    return done.status


def end_threads() -> None:
    """Wait for the announcement, for which no code waits."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_ANNOUNCED_S)


def broken(setting: Setting, command: str, target: Call, *, kill: bool) -> int:
    """Break one call of the plugin's; some may fail without the whole failing."""

    def call() -> int:
        fault = Fault(target, kill=kill)
        status = faulty(setting, command, fault)
        if not fault.reached:
            return NOT_REACHED
        return REACHED if status else SUCCEEDED

    return in_child(call) if kill else call()


def calls_of(setting: Setting, command: str) -> list[Call]:
    """Return each call that leaves the process, of a command that nothing breaks."""
    fault = Fault(None)
    assert faulty(setting, command, fault) == 0, f"{command} failed without a fault"
    return [(kind, number) for kind, most in fault.calls.items() for number in range(1, most + 1)]


def after_add(setting: Setting, before: dict[str, Any], turn: int, reached: int, *, kill: bool) -> list[str]:
    """Return what was wrong after a broken ADD, and after what follows it."""
    wrong = [f"after ADD: {text}" for text in differences(before, state(setting))] if reached == REACHED else []
    if kill and turn % 2:
        wrong += called(setting, "ADD")
    return wrong + called(setting, "DEL")


def after_del(setting: Setting, _before: dict[str, Any], turn: int, _reached: int, *, kill: bool) -> list[str]:
    """Return what was wrong with what follows a broken DEL, in turn: another DEL, the next ADD, the reconciler."""
    follows = (turn + kill) % 3
    if follows == 1:
        return called(setting, "ADD") + called(setting, "DEL")
    wrong = []
    if follows == 2:
        look_until_given_back(setting)
        # Entries that its DEL had not begun with belong to a pod that may still be alive.
        wrong = [] if phases(setting) <= {"held"} else ["the reconciler left what it should have given back"]
    return wrong + (called(setting, "DEL") if follows == 0 or phases(setting) else [])


def called(setting: Setting, command: str) -> list[str]:
    """Make an ordinary call; return what was wrong with it, in its own words."""
    done = call_plugin(setting, command)
    return [f"the next {command} failed: {done.text[:_MOST_TOLD]}"] if done.status else []


def left_behind(
    setting: Setting, before: dict[str, Any], calls: list[Call], *, kill: bool
) -> Iterator[tuple[Call, list[str] | None]]:
    """Yield each call with what was not as before once it was broken and what follows had followed.

    None for a call that was not made this time.
    """
    command = setting.get("command", "ADD")
    after = after_del if command == "DEL" else after_add
    for turn, call in enumerate(calls):
        wrong = called(setting, "ADD") if command == "DEL" else []
        reached = broken(setting, command, call, kill=kill)
        if reached == NOT_REACHED:
            run(setting, "DEL")
            yield call, None
            continue
        assert reached != CRASHED, f"the program of call {call} crashed"
        wrong += after(setting, before, turn, reached, kill=kill)
        wrong += [f"in the end: {text}" for text in differences(before, state(setting))]
        yield call, wrong


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] != now[name]]


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a text for each part of the state that is not as before: what is gone of it, and what is new."""
    texts = []
    for name in differing(before, now):
        old, new = ([part] if isinstance(part, str | None) else part for part in (before[name], now[name]))
        gone, come = [one for one in old if one not in new], [one for one in new if one not in old]
        texts.append(f"{name}: {gone} -> {come}")
    return texts


def main() -> int:
    log.set_up("fault-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    command = setting.get("command", "ADD")
    first, step = (int(word) for word in sys.argv[2:]) if len(sys.argv) > 2 else (1, 1)
    before = state(setting)
    if command == "DEL":
        assert called(setting, "ADD") == []
    calls = calls_of(setting, command)
    run(setting, "DEL")
    mine = [(kind, number) for kind, number in calls if number % step == first % step]
    part = Part(**setting["part"])
    tried: dict[str, dict[str, list[int]]] = {}
    missed: dict[str, dict[str, list[int]]] = {}
    wrong: dict[str, list[str]] = {}
    for way in ("error", "kill"):
        tried[way], missed[way] = {}, {}
        chosen = part.of_each_kind(mine, way)
        for (kind, number), found in left_behind(setting, before, chosen, kill=way == "kill"):
            (missed if found is None else tried)[way].setdefault(kind, []).append(number)
            if found:
                wrong[f"{way} {number} {kind}"] = found
    print(
        json.dumps(
            {"calls": Counter(kind for kind, _ in calls), "tried": tried, "missed": missed, "left_behind": wrong}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
