"""Whether the kubelet's calls come through the shim: by the shim's record, not by what files say.

`restart_kubelet` waits for a call; `judge` says for `check` what has been seen.
"""

import subprocess
import time
from pathlib import Path
from typing import Literal

from cli.node.errors import NodeError
from cli.node.kubelet_process import kubelet_process
from cli.node.look import below
from cli.node.plan.kubelet.command_line import UNIT, parse
from cli.node.plan.states import KubeletProcess
from cli.node.plan.steps import Step
from cli.node.site import Site
from mooring.errors import RecordError
from mooring.files import read_record
from mooring.records import kubelet_call
from mooring.records.kubelet_call import LastCall

Seen = Literal["recent", "awaited", "none", "unknown"]
# A kubelet polls every 5 s, and not while a call of it hangs, two minutes at most (runtimeRequestTimeout).
RECENT_S = 150.0
# A kubelet's start takes some seconds; a large node's up to a minute.
_START_S, _POLL_S = 90.0, 0.25


def last_call(root: Path) -> LastCall | None:
    """Return the shim's record of the kubelet's calls; None where it has left none."""
    try:
        text = read_record(below(root, f"/run/mooring/{kubelet_call.NAME}"))
        return None if text is None else kubelet_call.read_kubelet_call(text)
    except (RecordError, OSError):
        return None


def judge(root: Path, kubelet: KubeletProcess | None) -> Seen:
    """Return whether a call of the kubelet that runs was seen lately, or is awaited: it or the shim has just begun.

    It is unknown where neither the shim's record nor for how long a kubelet has run is there.
    """
    call = last_call(root)
    age_s = float("inf") if call is None else time.monotonic() - call.at_s
    runs_s = float("inf") if kubelet is None else kubelet.age_s
    if call is None and runs_s == float("inf"):
        return "unknown"
    if call is not None and not call.waiting and 0 <= age_s < min(RECENT_S, runs_s):
        return "recent"
    has_begun = min(runs_s, age_s if call is not None and call.waiting else runs_s) < RECENT_S
    return "awaited" if has_begun else "none"


def restart_kubelet(site: Site, step: Step) -> None:
    """Run the commands that restart the kubelet; raise NodeError if it then does not call the shim.

    One that did not run before is left alone: a node may be installed before it joins its cluster.
    """
    runs = site.root == Path("/") and _state() == "active"
    site.run(step.name, step.then, check=True)
    if runs:
        await_call(site.root, time.monotonic())
    elif site.root == Path("/"):
        site.say(step.name, f"{UNIT} does not run: `mooring-node check` says whether it calls the shim once it does")


def await_call(root: Path, since_s: float, limit_s: float = _START_S) -> None:
    """Return once the kubelet has called the shim after a time; raise NodeError if it does not within the limit."""
    while time.monotonic() - since_s < limit_s:
        call = last_call(root)
        if call is not None and not call.waiting and call.at_s > since_s:
            return
        time.sleep(_POLL_S)
    process = kubelet_process(root)
    started = "" if process is None else f", and its process has {parse(process.arguments[1:])}"
    raise NodeError(
        f"no call of the kubelet came through the shim within {limit_s:.0f} s of its restart: "
        f"{UNIT} is {_state()}{started}"
    )


def _state() -> str:
    asked = subprocess.run(["systemctl", "is-active", UNIT], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "not known to systemd"
