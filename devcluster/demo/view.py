"""The demo's output: live progress, the table of assigned VFs, and a line for each guarantee."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from devcluster.api import Object
from devcluster.demo.check import ContainerView, Verdict, VfInUse
from devcluster.demo.gpus import GpuInUse
from devcluster.demo.scenario import DemoPod

_LONGEST = 240


def progress(wanted: Sequence[DemoPod], pods: Mapping[str, Object], events: Mapping[str, str]) -> Table:
    """Return the pods as they are now: phase, node, and the latest event's text of those that do not run."""
    table = Table(title="pods", title_justify="left", expand=False)
    for column in ("pod", "asks for", "phase", "node", "latest event"):
        table.add_column(column, overflow="fold")
    for pod in wanted:
        found = pods.get(pod.name)
        phase = found["status"].get("phase", "") if found else "not created"
        node = found["spec"].get("nodeName", "") if found else ""
        colour = {"Running": "green", "Pending": "yellow"}.get(phase, "")
        says = "" if phase == "Running" else events.get(pod.name, "")
        table.add_row(pod.name, pod.about, f"[{colour}]{phase}[/]" if colour else phase, node, _short(says))
    return table


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def given_table(given: Sequence[VfInUse], views: Sequence[ContainerView]) -> Table:
    """Return one row for each VF of each running pod."""
    table = Table(title="VFs in pods", title_justify="left")
    for column in ("pod", "node", "interface", "PF", "VF", "PCI address", "min/max Mb/s", "devices in its containers"):
        table.add_column(column, overflow="fold")
    for vf in given:
        low, high = vf.rates
        seen = [
            f"{view.name}: {', '.join(sorted(view.devices & vf.own)) or '-'}" for view in views if view.pod == vf.pod
        ]
        row = (vf.pod, vf.node, vf.interface, vf.entry["pf"], str(vf.entry["vf"]), vf.entry["pci"])
        table.add_row(*row, f"{low or '-'} / {high or '-'}", "; ".join(seen))
    return table


def gpu_table(gpus: Sequence[GpuInUse], views: Sequence[ContainerView]) -> Table:
    """Return one row for each GPU of each running pod, with the VF that lies below its switch."""
    table = Table(title="GPUs in pods", title_justify="left")
    for column in ("pod", "node", "GPU", "VF beside it", "both below", "devices in its container"):
        table.add_column(column, overflow="fold")
    for gpu in gpus:
        seen = [sorted(view.gpus) for view in views if (view.pod, view.name) == (gpu.pod, gpu.container)]
        devices = "; ".join(f"{gpu.container}: {' '.join(found) or '-'}" for found in seen)
        table.add_row(gpu.pod, gpu.node, gpu.pci, gpu.vf or "-", gpu.meets or "-", devices)
    return table


def print_verdict(console: Console, verdict: Verdict) -> None:
    mark = "[green]held[/]  " if verdict.held else "[red]BROKEN[/]"
    looked = f"[dim](looked at {verdict.looked_at})[/]"
    console.print(f"{mark} promise {verdict.promise}: {verdict.text}: {len(verdict.breaches)} {looked}")
    for breach in verdict.breaches:
        console.print(f"       {breach}", markup=False, highlight=False)
