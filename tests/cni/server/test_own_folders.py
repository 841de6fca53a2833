"""Whose folders and server a call works with: the node's own, whatever a network's configuration names."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cni.server.dispatch import Answer, answer
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import RtnetlinkVfSettings
from mooring.records.ledger import FOLDER, LedgerEntry, Netns, Original, dump_ledger_entry

PCI = "0000:04:00.2"


def _call(command: str, own: Mapping[str, object], conf: Mapping[str, object], *, fixed: bool) -> Answer:
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/proc/self/ns/net",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/nonexistent",
        "CNI_ARGS": "K8S_POD_UID=u;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p",
    }
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "n", "type": "mooring-cni", **conf}).encode()
    return answer(environment, stdin, RtnetlinkVfSettings, own, enforces_places=fixed)


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """The node's own folders: an entry of a VF that is gone is in the ledger."""
    places = {name: tmp_path / "own" / name for name in ("state", "run", "sysfs")}
    for place in places.values():
        place.mkdir(parents=True)
    (places["sysfs"] / "bus/pci/devices").mkdir(parents=True)
    entry = LedgerEntry(PCI, "pf0", 0, "held", "boot", "u", "ns/p", "c", "net1", Netns("", 1), Original(), VfSettings())
    (places["state"] / FOLDER).mkdir()
    (places["state"] / FOLDER / f"{PCI}.json").write_text(dump_ledger_entry(entry))
    server = str(tmp_path / "own/run/cni.sock")
    return {name: str(place) for name, place in places.items()} | {"node": "n1", "server": server}


@pytest.mark.parametrize("folder", ["state", "run", "sysfs", "server"])
def test_a_network_that_names_another_folder_is_refused(folder: str, own: dict[str, str], tmp_path: Path) -> None:
    """Under Multus a tenant writes it: a ledger of his own would let him have VFs of other pods."""
    other = {folder: str(tmp_path / "other")}
    refused = _call("ADD", own, other, fixed=True)
    assert refused.code == 7
    assert f"configuration field '{folder}'" in json.loads(refused.text)["msg"]
    assert "which this node's configuration requires" in json.loads(refused.text)["msg"]
    assert not (tmp_path / "other").exists()
    assert _call("ADD", own, {folder: own[folder]}, fixed=True).code != 7
    assert _call("ADD", own, other, fixed=False).code != 7


@pytest.mark.parametrize("other", [{"state": "/nonexistent"}, {"server": "/x.sock"}, {"awaitInit": False}])
def test_a_chain_that_names_another_folder_keeps_no_pod_without_vfs(
    own: dict[str, str], other: dict[str, object]
) -> None:
    """Whether a pod has VFs is looked up in the node's own records; STATUS is that of such pods."""
    waits: dict[str, object] = {**own, "awaitInit": True}
    previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": []}
    assert _call("ADD", waits, {**other, "prevResult": previous}, fixed=True).code == 0
    assert _call("STATUS", waits, {**other, "cniVersion": "1.1.0"}, fixed=True).code == 0
    assert _call("GC", waits, {**other, "cniVersion": "1.1.0"}, fixed=True).code == 7


def test_a_network_does_not_keep_add_from_waiting_for_init(own: dict[str, str]) -> None:
    """VFs would be given before `init` has prepared them, if a tenant said so; that ADD waits any network may ask."""
    waits: dict[str, object] = {**own, "awaitInit": True}
    refused = _call("ADD", waits, {"awaitInit": False}, fixed=True)
    assert refused.code == 7
    assert "configuration field 'awaitInit'" in json.loads(refused.text)["msg"]
    assert _call("ADD", waits, {"awaitInit": True}, fixed=True).code != 7
    assert _call("DEL", waits, {"awaitInit": False}, fixed=True).code == 0
    assert _call("ADD", {**own, "awaitInit": False}, {"awaitInit": True}, fixed=True).code != 7


def test_a_del_works_in_the_nodes_own_ledger(own: dict[str, str], tmp_path: Path) -> None:
    """It is never refused for its configuration: the entry of its container is closed."""
    entry = Path(own["state"]) / FOLDER / f"{PCI}.json"
    assert _call("DEL", own, {"state": str(tmp_path / "other")}, fixed=False).code == 0
    assert entry.exists()
    assert _call("DEL", own, {"state": str(tmp_path / "other")}, fixed=True).code == 0
    assert not entry.exists()
