"""Put another link in the place of a pod's VF just before each call of a DEL; list what goes wrong.

    python -m tests.cni.loops.swap_loop SETTING.json

Run in the lab, as a program, with the setting of tests/cni/loops/fault_loop.py, and what the pod has: the VF's name
there (``given``) and its PCI address (``pci``). Before one call of DEL the VF leaves for the namespace of an
accomplice. A link of the pod's gets its ifindex, which an RTM_NEWLINK may choose, and its name and MAC. Of some the DEL
is killed a few calls later, and another DEL follows. Prints one JSON object: the calls before which that was done, by
kind, those that were not made this time, and what each left.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

from cni.kernel import netlink, netns
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

# The link that came instead has arrived then, or is just being put back.
KILLED_AFTER = (1, 2, 4)
POD, ACCOMPLICE = "pod", "accomplice"
# The decoy's other end stays with the accomplice.
SWAP = """
ip -n {pod} link set {name} netns {accomplice} name stolen || exit 0
ip -n {pod} link add {name} index {index} address {mac} type veth peer name peer netns {accomplice}
"""
# Also where a DEL has failed: the next call begins as the first one did.
CLEAN = """
ip -n {accomplice} link delete peer
ip -n {accomplice} link set stolen netns {pod} name {name}
"""


def shell(script: str, **words: object) -> None:
    text = script.format(pod=POD, accomplice=ACCOMPLICE, **words)
    subprocess.Popen(("sh", "-c", text), stderr=subprocess.DEVNULL).wait()


class Swapper(Fault):
    """Swap the VF before the call that is ``target``; die before the call that many later, if not 0."""

    def __init__(self, target: Call, link: netlink.Link, die_after: int) -> None:
        super().__init__(target)
        self._swap = {"name": link.name, "index": link.index, "mac": link.mac}
        self._die_after = die_after

    def strike(self, kind: str) -> None:
        if self.reached and self._die_after:
            self._die_after -= 1
            if not self._die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        with suppress(OSError):
            super().strike(kind)
            return
        shell(SWAP, **self._swap)


def swapped(setting: Setting, target: Call, die_after: int) -> int:
    """Make a DEL during which the VF is swapped once; return what became of it."""
    (link,) = netns.run_in(setting["environment"]["CNI_NETNS"], lambda: _links(setting["given"]))
    swapper = Swapper(target, link, die_after)
    status = faulty(setting, "DEL", swapper)
    if not swapper.reached:
        return NOT_REACHED
    return CRASHED if status else REACHED


def _links(name: str) -> list[netlink.Link]:
    return [link for link in netlink.links() if link.name == name]


def foreign(before: dict[str, object]) -> list[str]:
    """Return the links that are on the host now and were not before, but for the VF's own."""
    known = {link["ifname"] for link in before["links"]}  # type: ignore[attr-defined]
    return [f"on the host: {link.name}" for link in netlink.links() if link.name not in known]


def left_behind(
    setting: Setting, before: dict[str, object], calls: list[Call]
) -> Iterator[tuple[Call, list[str] | None]]:
    """Yield each call with what was wrong once the VF was swapped before it; None for one that was not made."""
    for call, die_after in product(calls, (0, *KILLED_AFTER)):
        wrong = called(setting, "ADD")
        outcome = in_child(lambda: swapped(setting, call, die_after))  # noqa: B023 - runs at once
        if outcome == NOT_REACHED:
            run(setting, "DEL")
            yield (f"{call[0]} +{die_after}", call[1]), None
            continue
        if outcome == -signal.SIGKILL:
            wrong += called(setting, "DEL")
        elif outcome != REACHED:
            wrong += ["DEL failed"]
        wrong += [f"after DEL: {name}" for name in differing(before, state(setting))]
        wrong += foreign(before)
        shell(CLEAN, name=setting["given"])
        wrong += called(setting, "DEL")
        yield (f"{call[0]} +{die_after}", call[1]), wrong


def main() -> int:
    log.set_up("swap-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    before = state(setting)
    assert called(setting, "ADD") == []
    calls = calls_of(setting, "DEL")
    tried: dict[str, list[int]] = {}
    missed: dict[str, list[int]] = {}
    wrong: dict[str, list[str]] = {}
    wanted = [call for call in calls if call[0] in setting["kinds"]]
    for (kind, number), found in left_behind(setting, before, Part(**setting["part"]).of_each_kind(wanted, "swap")):
        (missed if found is None else tried).setdefault(kind, []).append(number)
        if found:
            wrong[f"{number} {kind}"] = found
    print(json.dumps({"tried": tried, "missed": missed, "left_behind": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
