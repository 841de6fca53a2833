"""Find out whether the kubelet really calls the shim, from the shim's record of calls and not from configuration files.

`restart_kubelet` waits for a call; `judge` is for `check`.
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
# A kubelet polls every 5 s, unless one of its calls hangs, which takes at most two minutes (runtimeRequestTimeout).
RECENT_S = 150.0
# A kubelet starts within some seconds, on a large node within a minute.
_START_S, _POLL_S = 90.0, 0.25


def last_call(root: Path) -> LastCall | None:
    """Return the shim's record of the kubelet's last call; None without one."""
    try:
        text = read_record(below(root, f"/run/mooring/{kubelet_call.NAME}"))
        return None if text is None else kubelet_call.read_kubelet_call(text)
    except (RecordError, OSError):
        return None


def judge(root: Path, kubelet: KubeletProcess | None) -> Seen:
    """Return whether the shim has received a recent call, or is still waiting for one after it or the kubelet started.

    Unknown without both the shim's record and the age of a kubelet process.
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
    """Run the commands that restart the kubelet; raise NodeError if it does not call the shim afterwards.

    A kubelet that did not run before is not awaited, because Mooring can be installed before a node joins its cluster.
    """
    runs = site.root == Path("/") and _state() == "active"
    site.run(step.name, step.then, check=True)
    if runs:
        await_call(site.root, time.monotonic())
    elif site.root == Path("/"):
        site.say(
            step.name, f"{UNIT} is not running: once it runs, `mooring-node check` reports whether it calls the shim"
        )


def await_call(root: Path, since_s: float, limit_s: float = _START_S) -> None:
    """Wait for a call of the kubelet after ``since_s``; raise NodeError if none comes within ``limit_s`` seconds."""
    while time.monotonic() - since_s < limit_s:
        call = last_call(root)
        if call is not None and not call.waiting and call.at_s > since_s:
            return
        time.sleep(_POLL_S)
    process = kubelet_process(root)
    started = "" if process is None else f", and its process has {parse(process.arguments[1:])}"
    raise NodeError(
        f"the shim received no call from the kubelet within {limit_s:.0f} s of the kubelet's restart: "
        f"{UNIT} is {_state()}{started}"
    )


def _state() -> str:
    asked = subprocess.run(["systemctl", "is-active", UNIT], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown to systemd"
