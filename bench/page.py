"""Time the page of `kubectl mooring ui` in Chromium, on a cluster of devcluster's API server.

    python -m bench.page [--nodes 5000] [--pods 40000]

Nodes have four PFs and four GPUs; each pod has two VFs, every tenth waits, every fifth is in a group of eight. The
goals for 5,000 nodes and 40,000 pods: the first picture within 2 s of the lists' arrival, a change within a second, and
less than 500 MB in the browser. On a loaded machine the CPU time of `ui` and of the browser says more than the clock.
Exit status 1 if a goal is missed by both.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import Page, async_playwright

from bench.loads import scheduler_load as load
from bench.plugin import binding_of
from devcluster.apiserver.cluster import NODES, PODS
from devcluster.apiserver.serve import ApiServer
from devcluster.processes import Processes
from mooring import names
from mooring.gpu.inventory import KEY as GPU_INVENTORY
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory
from mooring.kube.access import load_access
from mooring.kube.client import MERGE_PATCH, Client

Json = dict[str, Any]
_FIRST_S, _CHANGE_S, _MOST_BYTES = 2.0, 1.0, 500_000_000
_GPUS, _VFS, _OF_A_GROUP, _CHANGES = 4, 32, 8, 5
_TICK_S = os.sysconf("SC_CLK_TCK")
# Notes when the page first says what it reads, when it says so last, when it shows a node, and the longest pause.
_NOTES = """
window.notes = {reading: 0, first: 0, pause: 0};
window.notePauses = () => {
  let last = performance.now();
  const tick = () => {
    const now = performance.now();
    window.notes.pause = Math.max(window.notes.pause, now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
};
new MutationObserver(() => {
  if (document.getElementById("state").textContent.startsWith("Reading ")) window.notes.reading = performance.now();
  if (!window.notes.first && document.querySelector(".node")) window.notes.first = performance.now();
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


def main() -> int:
    """Serve a cluster in a process of its own, open the page and measure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=40_000)
    parser.add_argument("--serve", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(Path(given.serve), given.nodes, given.pods))
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, processes = Path(folder) / "kubeconfig", Processes(Path(folder) / "logs")
        size = ("--nodes", str(given.nodes), "--pods", str(given.pods))
        try:
            processes.start("apiserver", [sys.executable, "-m", "bench.page", "--serve", str(kubeconfig), *size])
            processes.await_ready("apiserver", kubeconfig.exists, 300.0)
            print(f"{given.nodes} nodes, {given.pods} pods, load average {os.getloadavg()[0]:.1f}", flush=True)
            return asyncio.run(_measure(kubeconfig))
        finally:
            processes.stop()


async def _serve(kubeconfig: Path, nodes: int, pods: int) -> None:
    async with ApiServer() as server:
        for number in range(nodes):
            server.cluster.store.put(NODES, _stored("Node", _node(number), f"node-uid-{number}"))
        for number in range(pods):
            server.cluster.store.put(PODS, _stored("Pod", _pod(number, nodes), f"pod-uid-{number}"))
        kubeconfig.with_suffix(".new").write_text(server.kubeconfig_text())
        kubeconfig.with_suffix(".new").rename(kubeconfig)
        await asyncio.Event().wait()


def _stored(kind: str, document: Json, uid: str) -> Json:
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": uid, **document["metadata"]}
    return {"apiVersion": "v1", "kind": kind, **document, "metadata": metadata}


def _node(number: int) -> Json:
    made = load.node(number)
    gpus = (f"0000:{0x40 + at:02x}:00.0" for at in range(_GPUS))
    found = (Gpu(pci, f"GPU-{number:08x}-0000-4000-8000-{at:012x}", "nvidia") for at, pci in enumerate(gpus))
    made["metadata"]["annotations"][GPU_INVENTORY] = dump_gpu_inventory(GpuInventory(tuple(found)))
    made["metadata"]["labels"]["topology.kubernetes.io/rack"] = f"rack-{number // 16}"
    return made


def _pod(number: int, nodes: int) -> Json:
    made = load.mixed_pod(number)
    metadata = made["metadata"] = {**made["metadata"], "namespace": "default", "uid": f"pod-uid-{number}"}
    annotations = metadata.setdefault("annotations", {})
    if number // _OF_A_GROUP % 5 == 0:
        annotations[names.GROUP] = json.dumps({"name": f"job-{number // _OF_A_GROUP}", "min": _OF_A_GROUP})
    if number % 10 == 0 or number // nodes >= _VFS:
        why = f"0/{nodes} nodes are available: {nodes} no free VF."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        return made | {"status": {"phase": "Pending", "conditions": [condition]}}
    _, body = binding_of(metadata, load.node_name(number % nodes), number // nodes)
    annotations |= body["metadata"]["annotations"]
    made["spec"] = {**made["spec"], "nodeName": load.node_name(number % nodes)}
    return made | {"status": {"phase": "Running"}}


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds on the clock, and of CPU in `ui` and in the browser."""

    wall: float
    ui: float
    browser: float

    @property
    def least(self) -> float:
        """Return what a machine of their own would take at most: `ui` and the browser work one after the other."""
        return min(self.wall, self.ui + self.browser)

    def __str__(self) -> str:
        return f"{self.wall:.2f} s (CPU: ui {self.ui:.2f} s, browser {self.browser:.2f} s)"


async def _measure(kubeconfig: Path) -> int:
    ui = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "ui", "--kubeconfig", str(kubeconfig)), stdout=subprocess.PIPE
    )
    assert ui.stdout is not None
    try:
        address = (await ui.stdout.readline()).decode().removeprefix("open ").strip()
        async with async_playwright() as playwright, Client(load_access(str(kubeconfig))) as client:
            # Root has no sandbox in Chromium.
            browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            await page.add_init_script(_NOTES)
            first = await _first_picture(page, address, ui.pid)
            print(f"first picture after the lists: {first}", flush=True)
            changes = [await _change(page, client, ui.pid, number) for number in range(_CHANGES)]
            change = sorted(changes, key=lambda one: one.least)[len(changes) // 2]
            print(f"a change, median of {_CHANGES}: {change}", flush=True)
            pause = await _scroll(page)
            memory = await _memory(page)
            print(f"longest pause while scrolling {pause * 1000:.0f} ms, browser {memory / 1e6:.0f} MB")
            await browser.close()
    finally:
        ui.terminate()
        await ui.wait()
    is_good = first.least <= _FIRST_S and change.least <= _CHANGE_S and memory <= _MOST_BYTES
    return 0 if is_good else 1


async def _first_picture(page: Page, address: str, ui: int) -> _Cost:
    """Return the time from the last object that the page says is read to the first node in it."""
    await page.goto(address)
    before = (0.0, 0.0)
    while not (notes := await page.evaluate("window.notes"))["first"]:
        if notes["reading"]:
            before = await _cpu_at(page, notes["reading"], ui, before)
        await asyncio.sleep(0.1)
    ui_cpu, browser_cpu = _cpu(ui), _cpu_of_browser()
    return _Cost((notes["first"] - notes["reading"]) / 1000, ui_cpu - before[0], browser_cpu - before[1])


async def _cpu_at(page: Page, reading: float, ui: int, before: tuple[float, float]) -> tuple[float, float]:
    """Return the CPU seconds of both when the page said last that it reads; ``before`` if that is long ago."""
    now = await page.evaluate("performance.now()")
    return (_cpu(ui), _cpu_of_browser()) if now - reading < 200 else before


async def _change(page: Page, client: Client, ui: int, number: int) -> _Cost:
    """Make a node NotReady; return the time until the page counts it."""
    await asyncio.sleep(2.0)
    name = load.node_name(number * 16)
    ready = [{"type": "Ready", "status": "False"}]
    nodes = await page.evaluate("document.querySelector('.tile b').textContent")
    text = f"{int(nodes.replace(',', '')) - 1:,} of"
    cpu, browser = _cpu(ui), _cpu_of_browser()
    begun = time.perf_counter()
    path = f"/api/v1/nodes/{name}/status"
    await client.request("PATCH", path, msgspec.json.encode({"status": {"conditions": ready}}), MERGE_PATCH)
    await page.wait_for_function(
        "text => document.querySelector('.tile')?.textContent.includes(text)", arg=text, polling=20
    )
    return _Cost(time.perf_counter() - begun, _cpu(ui) - cpu, _cpu_of_browser() - browser)


async def _scroll(page: Page) -> float:
    """Scroll through the first racks as a person does; return the longest time between two frames, in seconds."""
    await page.evaluate("window.notePauses()")
    for _ in range(60):
        await page.mouse.wheel(0, 400)
        await asyncio.sleep(0.05)
    return float(await page.evaluate("window.notes.pause")) / 1000


async def _memory(page: Page) -> int:
    """Return the resident bytes of the process that has the page."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    return max(_field(pid, "VmRSS") << 10 for pid in _browsers("renderer"))


def _browsers(kind: str = "") -> Iterator[int]:
    """Yield the processes of the browser that this program started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "chromium" in command.partition("\0")[0] and (not kind or f"--type={kind}" in command):
            yield int(folder.name)


def _field(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1])


def _cpu_of_browser() -> float:
    return sum(map(_cpu, _browsers()))


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK_S


if __name__ == "__main__":
    sys.exit(main())
