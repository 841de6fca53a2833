"""What a compromised node can write: the annotation of its own node, up to the API server's 256 KiB."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.hostile.attack import attack
from bench.hostile.attacks.groups import members
from bench.hostile.stage import NODES, Stage
from bench.loads import scheduler_load as load
from mooring import names

_NAME = "compromised"
# The API server refuses more for all annotations of an object together.
_LARGEST = 262_144 - 100


@asynccontextmanager
async def published(stage: Stage, inventory: str, name: str = _NAME) -> AsyncIterator[str]:
    """Let a Ready node say this meanwhile; yield its name."""
    node = load.node(0)
    status = node.pop("status")
    node["metadata"] = {"name": name, "annotations": {names.INVENTORY: inventory}}
    await stage.create(NODES, node)
    try:
        await stage.patch(f"{NODES}/{name}/status", {"status": status})
        yield name
    finally:
        await stage.delete(f"{NODES}/{name}")


async def write_inventory(stage: Stage, inventory: str) -> None:
    await stage.patch(f"{NODES}/{_NAME}", {"metadata": {"annotations": {names.INVENTORY: inventory}}})


def pf(number: int, vfs: str, out: list[load.Json]) -> load.Json:
    pci = f"0000:{number + 1:02x}:00"
    known = {"name": f"pf{number}", "pci": f"{pci}.0", "link": "ethernet", "network": "rail0", "up": True}
    rates = {"mbps": 100_000, "offer_mbps": 100_000, "can": ["min_tx_rate"]}
    return {**known, **rates, "vf0": f"{pci}.2", "stride": 1, "vfs": vfs, "out": out}


def _inventory(pfs: int, outs: int, vfs: str) -> str:
    out: list[load.Json] = [{"vfs": vfs, "why": f"{number}", "min_tx_rate": 1} for number in range(outs)]
    return json.dumps({"v": 1, "boot": load.BOOT, "pfs": [pf(number, vfs, out) for number in range(pfs)]})


@attack("inventory-overlapping", "a node says 40 times that the VFs 0-65534 of a PF are out")
async def overlapping(stage: Stage) -> AsyncIterator[None]:
    """2 KB."""
    async with published(stage, _inventory(1, 40, "0-65534")):
        yield


@attack("inventory-64-pfs", "a node says that it has 64 PFs with 4,096 VFs each, out in four ways")
async def many_pfs(stage: Stage) -> AsyncIterator[None]:
    """26 KB."""
    async with published(stage, _inventory(64, 4, "0-4095")):
        yield


@attack("inventory-largest", "a node has as many VFs out, one by one, as an inventory may have characters")
async def largest(stage: Stage) -> AsyncIterator[None]:
    """The largest that is read."""
    out: list[load.Json] = [{"vfs": str(number), "why": f"w{number}", "min_tx_rate": 1} for number in range(2800)]
    text = json.dumps({"v": 1, "boot": load.BOOT, "pfs": [pf(0, "0-2799", out)]}, separators=(",", ":"))
    async with published(stage, text):
        yield


@attack("inventory-versions", "a node writes 150 versions of an inventory of 46 KiB", lasts_s=2.0)
async def versions(stage: Stage) -> AsyncIterator[None]:
    """Each with VFs out for reasons of its own."""

    def text(version: int) -> str:
        out = [{"vfs": str(number), "why": f"held by pod {version}-{number}"} for number in range(900)]
        return json.dumps({"v": 1, "boot": load.BOOT, "pfs": [pf(0, "0-999", out)]})

    async with published(stage, text(0)):
        for version in range(1, 150):
            await write_inventory(stage, text(version))
        yield


@attack("inventory-300-versions", "a node writes 300 versions of an inventory of 7.8 KB", lasts_s=2.0)
async def small_versions(stage: Stage) -> AsyncIterator[None]:
    """As many VFs as PFs have, out for reasons of their own."""

    def text(version: int) -> str:
        out = [{"vfs": str(number), "why": f"held by pod {version}-{number}"} for number in range(150)]
        return json.dumps({"v": 1, "boot": load.BOOT, "pfs": [pf(0, "0-199", out)]})

    async with published(stage, text(0)):
        for version in range(1, 300):
            await write_inventory(stage, text(version))
        yield


@attack(
    "inventory-networks", "a node has 128 networks of its own, and groups ask for one for all members", lasts_s=10.0
)
async def networks(stage: Stage) -> AsyncIterator[None]:
    """Each may be tried for each interface."""
    pfs = [pf(number, "0-3", []) | {"network": f"a{number}"} for number in range(128)]
    rails: load.Json = {"rails": "same"}
    pods = [pod for number in range(5) for pod in members(f"g{number}", 4, {}, rails, cpus=4)]
    async with published(stage, json.dumps({"v": 1, "boot": load.BOOT, "pfs": pfs})), stage.pods(*pods):
        yield


@attack("node-restless", "a node changes all the time while a group of 400 pods that fits nowhere waits", lasts_s=1.0)
async def restless(stage: Stage) -> AsyncIterator[None]:
    """It is free, and then it is not."""
    texts = [_inventory(1, 0, f"0-{last}") for last in (99, 9)]
    pods = members("wants", 400, {}, {}, cpus=50)
    async with published(stage, texts[0]), stage.pods(*pods):
        for version in range(300):
            await write_inventory(stage, texts[version % 2])
        yield


@attack("inventory-duplicate-key", "the last of 24,000 keys of a node's inventory is there twice")
async def duplicate_key(stage: Stage) -> AsyncIterator[None]:
    """It is read whole to see that."""
    keys = ",".join(f'"{number}":0' for number in range(24_000))
    async with published(stage, f'{{{keys},"23999":0}}'):
        yield


@attack("inventory-nesting", "a node's inventory is 262,000 opening brackets")
async def nesting(stage: Stage) -> AsyncIterator[None]:
    """No reader may recurse into it."""
    async with published(stage, "[" * _LARGEST):
        yield


@attack("node-resources", "a node publishes 20 times 10,000 resources that nobody knows", lasts_s=2.0)
async def resources(stage: Stage) -> AsyncIterator[None]:
    """Another set each time."""
    async with published(stage, _inventory(1, 0, "0-9")):
        for version in range(20):
            amounts = {f"node-{version}.example/{number}": "1" for number in range(10_000)}
            # Replaces nothing: a merge patch adds, and what was there is taken back by null.
            gone = {f"node-{version - 1}.example/{number}": None for number in range(10_000)} if version else {}
            status = {"allocatable": amounts | gone, "capacity": amounts | gone}
            await stage.patch(f"{NODES}/{_NAME}/status", {"status": status})
        yield
