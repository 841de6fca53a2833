"""Run inside the lab: the advertiser as it is deployed, an API server beside it, and trouble on the host.

    python advertiser_scenario.py FIRST SECOND WISHES

FIRST and SECOND are the PFs' netdevs, WISHES what `ip` sets on a VF of FIRST in the end. On InfiniBand there is no
trouble with the link: a PF is up where its port is, which `ip` does not change.

Prints one JSON object: for each trouble the PFs' inventory when it was seen. Nothing but the event that a trouble
causes can have shown it: the advertiser looks without one an hour later, and has come to rest before each trouble.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from devcluster.apiserver.serve import ApiServer, Options
from mooring.names import DRAIN, INVENTORY

NODE = "/api/v1/nodes/lab"
PAGES = "127.0.0.1:54005"
# Against hanging, in a kernel that has a share of one core.
PATIENCE_S = 240
# An advertiser that has not scanned for so long, by its own clock, scans only on an event. After the last event it
# scans once more within a second.
AT_REST_S = 2.0
MERGE = {"Content-Type": "application/merge-patch+json"}
DEVICES = Path("/sys/bus/pci/devices")
Pfs = list[dict[str, Any]]


def outs(pf: dict[str, Any]) -> dict[str, str]:
    return {entry["vfs"]: entry["why"] for entry in pf.get("out", [])}


def vf(index: int) -> Path:
    return DEVICES / "0000:3b:00.0" / f"virtfn{index}"


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


async def annotate(session: aiohttp.ClientSession, annotations: dict[str, str | None]) -> None:
    async with session.patch(NODE, json={"metadata": {"annotations": annotations}}, headers=MERGE) as answer:
        answer.raise_for_status()
        found = (await answer.json())["metadata"].get("annotations", {})
        assert all(found.get(key) == value for key, value in annotations.items())


async def pfs(session: aiohttp.ClientSession) -> Pfs:
    async with session.get(NODE) as answer:
        text = (await answer.json())["metadata"].get("annotations", {}).get(INVENTORY)
    found: Pfs = json.loads(text)["pfs"] if text else []
    return found


async def seen(session: aiohttp.ClientSession, holds: Callable[[Pfs], bool]) -> Pfs:
    """Wait until the annotation is as it should be, and the advertiser at rest; return the PFs."""
    while not ((found := await pfs(session)) and holds(found)):
        await asyncio.sleep(0.02)
    while await age_s(session) < AT_REST_S:
        await asyncio.sleep(0.1)
    return found


async def age_s(session: aiohttp.ClientSession) -> float:
    """Return how long ago the advertiser last scanned the host, by its own report."""
    async with session.get(f"http://{PAGES}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (last,) = (line.split()[1] for line in lines if line.startswith("mooring_inventory_last_scan_timestamp_seconds "))
    return time.time() - float(last)


async def scenario(session: aiohttp.ClientSession, second: str) -> dict[str, Any]:
    results: dict[str, Any] = {}

    async def see(name: str, holds: Callable[[Pfs], bool]) -> None:
        print(name, file=sys.stderr)
        results[name] = {"pfs": await seen(session, holds)}

    await see("start", lambda found: len(found) == 2 and not any(outs(pf) for pf in found))
    if not second.startswith("ib"):
        ip(f"link set {second} down")
        await see("link down", lambda found: not found[1]["up"])
        ip(f"link set {second} up")
        await see("link up", lambda found: found[1]["up"])
    ip("netns add other")
    ip(f"link set {next((vf(1) / 'net').iterdir()).name} netns other")
    await see("vf moved away", lambda found: "1" in outs(found[0]))
    ip("netns del other")
    await see("vf came back", lambda found: "1" not in outs(found[0]))
    (vf(2) / "driver" / "unbind").write_text(vf(2).readlink().name)
    await see("driver unbound", lambda found: outs(found[0]).get("2") == "no driver")
    await annotate(session, {DRAIN: json.dumps([second])})
    await see("pf drained", lambda found: outs(found[1]) == {"0-3": "drained"})
    await annotate(session, {INVENTORY: None})
    await see("annotation removed", lambda found: outs(found[1]) == {"0-3": "drained"})
    for command in (f"set {second} down", f"set {second} name port1", "set port1 up"):
        ip(f"link {command}")
    await see("pf renamed", lambda found: found[1]["name"] == "port1" and found[1]["up"])
    (DEVICES / "0000:3b:00.1" / "remove").write_text("1")
    await see("pf gone", lambda found: len(found) == 1)
    return results


async def main(first: str, second: str, wishes: str) -> None:
    flags = ["--kubeconfig", "/tmp/kubeconfig", "--node-name", "lab", "--getpfs-addr", PAGES, "--resync", "3600"]
    async with ApiServer(Options()) as server, aiohttp.ClientSession(server.url) as session:
        Path("/tmp/kubeconfig").write_text(server.kubeconfig_text())
        async with session.post("/api/v1/nodes", json={"metadata": {"name": "lab"}}) as answer:
            answer.raise_for_status()
        advertiser = await asyncio.create_subprocess_exec(sys.executable, "-m", "advertiser", "serve", *flags)
        try:
            async with asyncio.timeout(PATIENCE_S):
                results = await scenario(session, second)
            ip(f"link set {first} vf 3 {wishes}")
            async with session.get(f"http://{PAGES}/getpfs") as answer:
                results["getpfs"] = await answer.json()
            async with session.get(f"http://{PAGES}/readyz") as answer:
                results["readyz"] = answer.status
        finally:
            advertiser.terminate()
            status = await advertiser.wait()
        print(json.dumps({**results, "status": status}))


asyncio.run(main(*sys.argv[1:]))
