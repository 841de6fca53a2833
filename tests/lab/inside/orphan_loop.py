"""Kill an ADD at every call that leaves the process, run the reconciler, and list what stays behind.

A VF that is `held` is left with the pod, for only the runtime knows that this ADD failed. Then the pod's network
namespace goes, without a DEL, and the reconciler runs again.

    python -m tests.lab.inside.orphan_loop SETTING.json

Run inside the lab, as a program, with the setting of tests/cni/loops/fault_loop.py. Prints one JSON object: which calls
were killed and which not reached, and how many left orphans at once. It also has how many VFs were held, and what was
not as before in the end.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mooring.program import log
from tests.cni.loops.fault_loop import NOT_REACHED, broken, calls_of, differing, look, phases, run, state
from tests.support.polling import reaches
from tests.support.seeds import Part

_RETURNS_S = 60.0


def look_until(setting: dict[str, Any], ended: Callable[[set[str]], bool]) -> int:
    """Run the reconciler until the phases are as wanted, up to a limit; return how often."""
    number = 0

    def has_ended() -> bool:
        nonlocal number
        number += 1
        look(setting)
        return ended(phases(setting))

    reaches(has_ended, _RETURNS_S, pause_s=0)
    return number


def end_sandbox(setting: dict[str, Any]) -> None:
    """Let the pod's namespace go, and look until the ledger is empty; then make a new one for the next try."""
    for command in ("delete", "add"):
        subprocess.run(("ip", "netns", command, Path(setting["environment"]["CNI_NETNS"]).name), check=True)
        look_until(setting, lambda found: not found)


def main() -> int:
    log.set_up("orphan-loop")
    setting = json.loads(Path(sys.argv[1]).read_text())
    before = state(setting)
    calls = calls_of(setting, "ADD")
    run(setting, "DEL")
    left_behind: dict[str, list[str]] = {}
    again: dict[str, int] = {}
    killed: list[str] = []
    missed: list[str] = []
    orphans = held = 0
    for kind, number in Part(**setting["part"]).of_each_kind(calls):
        name = f"{kind} {number}"
        reached = broken(setting, "ADD", (kind, number), kill=True)
        if reached >= 0:
            assert reached == NOT_REACHED, f"{name} crashed"
            missed.append(name)
            run(setting, "DEL")
            continue
        killed.append(name)
        orphans += bool(phases(setting) - {"held"})
        looks = look_until(setting, lambda found: found <= {"held"})
        again |= {name: looks} if looks > 1 else {}
        if phases(setting) == {"held"}:
            held += 1
            end_sandbox(setting)
        if found := differing(before, state(setting)):
            left_behind[name] = found
            run(setting, "DEL")
    run(setting, "DEL")
    counts = {"orphans": orphans, "held": held, "again": again}
    print(json.dumps({"killed": killed, "missed": missed, **counts, "left_behind": left_behind}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
