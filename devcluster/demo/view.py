"""The demo's output, on 80 columns: steps, tables of pods, VFs and GPUs, and a line for each promise."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from devcluster.api import Object
from devcluster.demo.check import ContainerView, Verdict, VfInUse
from devcluster.demo.gpus import GpuInUse
from devcluster.demo.scenario import DemoPod

WIDTH = 80
STEPS = 6


def console() -> Console:
    """Return where the demo writes: a terminal in its width, anything else in 80 columns."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)


def print_step(console: Console, number: int, title: str) -> None:
    console.print(f"[bold]Step {number} of {STEPS}: {title}[/]")


def progress(wanted: Sequence[DemoPod], pods: Mapping[str, Object], events: Mapping[str, str]) -> Group:
    """Return the pods as they are now; below, why those do not run that are expected not to."""
    table = _table("", "pod", "asks for", "state", "node")
    # By text: the ranks of a job all wait for the same.
    notes: dict[str, str] = {}
    for pod in wanted:
        found = pods.get(pod.name)
        phase = found["status"].get("phase", "") if found else "not created"
        node = found["spec"].get("nodeName", "") if found else ""
        says = "" if phase == "Running" else events.get(pod.name, "")
        is_settled = phase == "Running" if pod.expect == "Running" else bool(says and pod.says in says)
        state = f"{phase}, as expected" if is_settled and pod.expect != "Running" else phase
        table.add_row("[green]✔[/]" if is_settled else "[yellow]…[/]", pod.name, pod.about, state, node)
        if says and pod.expect != "Running":
            notes.setdefault(says, pod.name)
    told = [Padding(Text(f"{name}: {says}", style="dim"), (0, 0, 0, 3)) for says, name in notes.items()]
    return Group(table, *told)


def given_table(given: Sequence[VfInUse], views: Sequence[ContainerView]) -> Table:
    """Return one row for each VF of each running pod: rates read back from the PF, devices from the containers."""
    table = _table("pod", "node", "VF", "PCI address", "min / max Mb/s", "RDMA devices")
    for vf in given:
        low, high = vf.rates
        own = [view for view in views if view.pod == vf.pod]
        seen = [f"{view.name}: {', '.join(sorted(view.devices & vf.own)) or '-'}" for view in own]
        if len(own) == 1:
            seen = [seen[0].partition(": ")[2]]
        name = f"{vf.entry['pf']}/{vf.entry['vf']}"
        table.add_row(vf.pod, vf.node, name, vf.entry["pci"], f"{low or '-'} / {high or '-'}", "\n".join(seen))
    return table


def gpu_table(gpus: Sequence[GpuInUse], views: Sequence[ContainerView]) -> Table:
    """Return one row for each GPU of each running pod, with the VF that lies below its switch."""
    table = _table("pod", "node", "GPU", "VF beside it", "both below", "devices")
    for gpu in gpus:
        seen = [sorted(view.gpus) for view in views if (view.pod, view.name) == (gpu.pod, gpu.container)]
        devices = "; ".join(" ".join(found) or "-" for found in seen)
        table.add_row(gpu.pod, gpu.node, gpu.pci, gpu.vf or "-", gpu.meets or "-", devices)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_verdict(console: Console, verdict: Verdict) -> None:
    mark = "[green]✔[/]" if verdict.held else "[red]✗[/]"
    console.print(f"{mark} {verdict.promise} {verdict.text} [dim]({verdict.looked_at} checked)[/]")
    if not verdict.looked_at:
        console.print("    nothing was there to check", markup=False)
    for breach in verdict.breaches:
        console.print(f"    {breach}", markup=False, highlight=False)
