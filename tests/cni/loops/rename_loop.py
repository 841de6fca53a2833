"""Rename the VFs' netdevs and RDMA devices just before each call of an ADD or a DEL, as udev may; list what goes wrong.

    python -m tests.cni.loops.rename_loop SETTING.json

Run inside the host's network namespace (or the lab), as a program, with the setting of tests/cni/loops/fault_loop.py
and the VFs' names: those of their netdevs on the host (``netdevs``), and those in the pod (``given``). Calls are those
that `fault_loop` breaks, numbered within their kind. A VF's devices are renamed where they are on the host then; those
in a pod are out of udev's reach. Prints one JSON object: for each kind the calls before which something was renamed,
those that were not made this time, and what each left.
"""

import errno
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cni.kernel import netlink, netns
from mooring.nic import netlink_codec, rdma_netlink
from mooring.program import log
from tests.cni.loops.fault_loop import (
    CRASHED,
    NOT_REACHED,
    REACHED,
    Fault,
    Setting,
    called,
    calls_of,
    differing,
    faulty,
    in_child,
    run,
    state,
)
from tests.support.seeds import Call, Part

Names = Mapping[int, str]


def netdevs(setting: Setting) -> Names:
    """Return the names of the VFs' netdevs on the host by index."""
    found = {name: netlink.index_of(name) for name in setting["netdevs"]}
    assert None not in found.values(), found
    return {index: name for name, index in found.items() if index is not None}


def devices() -> Names:
    """Return the names of the host's RDMA devices by index, none without RDMA."""
    try:
        listed = [dict(message) for message in rdma_netlink.exchange(rdma_netlink.GET, {}, dump=True)]
    except OSError:
        return {}
    return {
        netlink_codec.number(each[rdma_netlink.DEV_INDEX]): netlink_codec.text(each[rdma_netlink.DEV_NAME])
        for each in listed
    }


def rename_netdev(index: int, name: str) -> None:
    """Rename a netdev if it is in this namespace; up, it keeps its name before Linux 6.2."""
    try:
        netlink.rename(index, name)
    except OSError as refused:
        if refused.errno not in (errno.ENODEV, errno.EBUSY):
            raise


def rename_device(index: int, name: str) -> None:
    """Rename an RDMA device if it is in this namespace: without it the kernel answers EINVAL (nldev_set_doit)."""
    named = {rdma_netlink.DEV_INDEX: netlink_codec.u32(index), rdma_netlink.DEV_NAME: name.encode() + b"\0"}
    with suppress(OSError):
        rdma_netlink.exchange(rdma_netlink.SET, named)


class Renamer(Fault):
    """Rename everything before the call that is ``target``, on a thread that is always in the host's namespace."""

    def __init__(self, target: Call, of_netdevs: Names, of_devices: Names) -> None:
        super().__init__(target)
        self._struck, self._done = threading.Event(), threading.Event()
        self._netdevs, self._devices = of_netdevs, of_devices
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def strike(self, kind: str) -> None:
        if threading.current_thread() is self._thread:
            return
        with suppress(OSError):
            super().strike(kind)
            return
        self._struck.set()
        self._done.wait()

    def _work(self) -> None:
        self._struck.wait()
        for index in self._netdevs:
            rename_netdev(index, f"ud{index}")
        for index in self._devices:
            rename_device(index, f"udr{index}")
        self._done.set()


def renamed(setting: Setting, command: str, target: Call, of_netdevs: Names, of_devices: Names) -> int:
    """Make a call during which everything is renamed once; return what became of it."""
    renamer = Renamer(target, of_netdevs, of_devices)
    status = faulty(setting, command, renamer)
    if status:
        return CRASHED
    return REACHED if renamer.reached else NOT_REACHED


def name_back(of_netdevs: Names, of_devices: Names) -> None:
    """Give those their names back that have udev's now; any other name is a leftover."""
    for index, name in of_netdevs.items():
        link = netlink.get(index)
        if link is not None and link.name == f"ud{index}":
            was_up = link.up
            netlink.set_up(index, up=False)
            netlink.rename(index, name)
            netlink.set_up(index, up=was_up)
    now = devices()
    for index, name in of_devices.items():
        if now.get(index) == f"udr{index}":
            rename_device(index, name)


def lacking(setting: Setting) -> list[str]:
    """Return what the pod does not have of what it was given."""
    path = setting["environment"]["CNI_NETNS"]
    inside = {link.name for link in netns.run_in(path, netlink.links)}
    return [f"in the pod: no {name}" for name in setting["given"] if name not in inside]


def left_behind(
    setting: Setting, before: dict[str, object], calls: list[Call]
) -> Iterator[tuple[Call, list[str] | None]]:
    """Yield each call with what was wrong once something was renamed before it; None for one that was not made."""
    command = setting["command"]
    for call in calls:
        names = netdevs(setting), devices()
        wrong = called(setting, "ADD") if command == "DEL" else []
        outcome = in_child(lambda: renamed(setting, command, call, *names))  # noqa: B023 - runs at once
        wrong += [f"{command} failed"] if outcome not in (REACHED, NOT_REACHED) else []
        wrong += lacking(setting) if command == "ADD" and not wrong else []
        run(setting, "DEL") if outcome == NOT_REACHED else wrong.extend(called(setting, "DEL"))
        name_back(*names)
        wrong += [f"in the end: {name}" for name in differing(before, state(setting))]
        yield call, wrong if outcome != NOT_REACHED or wrong else None


def main() -> int:
    log.set_up("rename-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    before = state(setting)
    command = setting["command"]
    if command == "DEL":
        assert called(setting, "ADD") == []
    calls = calls_of(setting, command)
    run(setting, "DEL")
    tried: dict[str, list[int]] = {}
    missed: dict[str, list[int]] = {}
    wrong: dict[str, list[str]] = {}
    chosen = Part(**setting["part"]).of_each_kind(calls, "rename")
    for (kind, number), found in left_behind(setting, before, chosen):
        (missed if found is None else tried).setdefault(kind, []).append(number)
        if found:
            wrong[f"{number} {kind}"] = found
    print(json.dumps({"tried": tried, "missed": missed, "left_behind": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
