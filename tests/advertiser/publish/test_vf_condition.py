"""The advertiser says of its node what the CNI server has found: condition, inventory and metric."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from advertiser.formats.vf_condition import TYPE, condition_of
from cni.server.extracts import make_folders
from devcluster.apiserver.serve import ApiServer, Options
from devcluster.hosts.sysfs import build
from mooring import names
from mooring.annotations.inventory import read_inventory
from mooring.files import write_shared
from mooring.records.vf_faults import NAME, ForeignEntry, VfFaults, dump_vf_faults
from tests.advertiser.program import advertising
from tests.support.polling import eventually
from tests.support.simulated_nics import MLX5

_NODE = "/api/v1/nodes/n1"
_FOREIGN = ForeignEntry("/var/lib/mooring/vfs/x", "a named pipe, not a regular file")


async def test_the_node_says_what_keeps_its_vfs_and_what_lies_in_its_folders(tmp_path: Path) -> None:
    """A foreign entry keeps no VF; an offer that cannot be read keeps all that no pod has."""
    build(tmp_path / "sys", MLX5.host(vfs=4))
    make_folders(tmp_path / "run")
    async with ApiServer(Options(port=0)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        async with aiohttp.ClientSession(server.url) as session:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
            async with session.post("/api/v1/nodes", json=node) as answer:
                assert answer.status == 201
            async with advertising(tmp_path, "--resync", "0.2") as advertiser:
                _leave(tmp_path, VfFaults())
                await _node(session, lambda found: found["reason"] == "VfsAvailable")
                _leave(tmp_path, VfFaults(foreign=(_FOREIGN,), count=1))
                bad = await _node(session, lambda found: found["reason"] == "ForeignEntries")
                condition = next(one for one in bad["status"]["conditions"] if one["type"] == TYPE)
                assert (condition["status"], condition["message"]) == ("True", f"{_FOREIGN.path}: {_FOREIGN.why}")
                await advertiser.scanned()
                assert not _outs(await _get(session))
                assert "mooring_inventory_foreign_entries 1.0" in (await advertiser.page("/metrics"))[1]
                _leave(tmp_path, VfFaults(unavailable="the node's offer cannot be read: x"))
                await _node(session, lambda found: found["reason"] == "VfsUnavailable")

                async def are_out() -> bool:
                    reason = "the CNI plugin cannot give it: the node's offer cannot be read: x"
                    return _outs(await _get(session)) == {reason}

                await eventually(are_out)


def test_the_message_names_some_and_counts_the_others() -> None:
    """A condition is read by people, and bounded."""
    foreign = tuple(ForeignEntry(f"/x/{number}", "a folder, not a regular file") for number in range(9))
    said = condition_of(VfFaults(faults=("ipam plugin 'x' is not in '/opt/cni/bin'",), foreign=foreign, count=300))
    assert (said.status, said.reason) == ("True", "VfFaults")
    assert said.message.startswith("ipam plugin 'x' is not in")
    assert said.message.endswith("/x/4: a folder, not a regular file; and 295 more foreign entries")
    assert len(condition_of(VfFaults(unavailable="x" * 5000)).message) == 1024


def _leave(folder: Path, found: VfFaults) -> None:
    write_shared(folder / "run" / NAME, dump_vf_faults(found))


def _outs(node: dict[str, Any]) -> set[str]:
    inventory = read_inventory(node["metadata"]["annotations"][names.INVENTORY])
    return {out.why for pf in inventory.pfs for out in pf.out}


async def _get(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get(_NODE) as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def _node(session: aiohttp.ClientSession, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the node as soon as its condition is as expected."""

    async def wished() -> dict[str, Any] | None:
        node = await _get(session)
        conditions = node.get("status", {}).get("conditions") or ()
        found = next((one for one in conditions if one["type"] == TYPE), None)
        return node if found is not None and holds(found) else None

    return await eventually(wished)
