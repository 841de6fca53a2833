"""What lies in the node's folders and is none of its records keeps no call, no repair and no other pod."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mooring import names
from tests.support.foreign import FOREIGN, litter, remove
from tests.support.polling import wait_until
from tests.support.simulated_nics import MLX5, ON_MLX5

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

FIRST, SECOND = MLX5.first, MLX5.second
# Of other VFs than those of a test's pods, and of other pods.
OTHER_VF, OTHER_POD = "0000:04:00.4.json", "u9.json"


@pytest.fixture
def littered(host: Any) -> Iterator[Any]:
    """A host with one thing of each kind in each folder that a call may read."""
    state, run = host.layout.state, host.layout.run
    folders = {state / "vfs": OTHER_VF, state / "pods": OTHER_POD, state / "rates": OTHER_POD}
    folders |= {run / "sandboxes": "u9.0123456789abcdef", run / "version": "mooring-cri-shim"}
    left = [path for folder, name in folders.items() for path in litter(folder, name)]
    yield host
    for path in left:
        remove(path)


@ON_MLX5
def test_a_pod_without_vfs_comes_and_goes(littered: Any) -> None:
    """ADD, CHECK, DEL and STATUS of a pod that asks for nothing, whatever lies there."""
    plain = littered.conf(None, cniVersion="1.1.0")
    assert littered.call("ADD", plain, uid="u9")["status"] == 0
    assert littered.call("CHECK", plain, uid="u9") == {"status": 0}
    for netns in (None, ""):
        assert littered.call("DEL", plain, uid="u9", netns=netns) == {"status": 0}
    assert littered.call("STATUS", littered.conf(cniVersion="1.1.0")) == {"status": 0}


@ON_MLX5
def test_a_pod_with_vfs_comes_and_goes_and_its_own_entry_alone_is_touched(littered: Any) -> None:
    """Its VFs come back, and what lies beside its entries stays as it is."""
    littered.record(FIRST, SECOND)
    folder = littered.layout.state / "vfs"
    before = sorted(path.name for path in folder.iterdir())
    links = littered.links()
    added = littered.call("ADD", littered.conf({names.REQUEST: "[{},{}]"}))
    assert [each["name"] for each in added["interfaces"]] == ["eth0", "net1", "rdma7"]
    assert littered.call("DEL") == {"status": 0}
    assert (sorted(path.name for path in folder.iterdir()), littered.links()) == (before, links)


@ON_MLX5
def test_gc_passes_over_them(littered: Any) -> None:
    """It gives back what the runtime does not list."""
    (littered.layout.state / "vfs" / "0000:04:01.0.json").write_text("{")
    littered.record(FIRST)
    assert littered.call("ADD")["status"] == 0
    fields = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
    assert littered.call("GC", littered.conf(**fields)) == {"status": 0}
    assert not (littered.layout.state / "vfs" / f"{FIRST['pci']}.json").exists()
    (littered.layout.state / "vfs" / "0000:04:01.0.json").unlink()


@ON_MLX5
@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_vf_whose_entry_is_something_else_is_not_taken(host: Any, kind: str) -> None:
    """ADD cannot tell whether a pod has it; other pods are not concerned, nor is the DEL that follows."""
    path = host.layout.state / "vfs" / f"{FIRST['pci']}.json"
    path.parent.mkdir(exist_ok=True)
    FOREIGN[kind](path)
    try:
        host.record(FIRST)
        assert host.call("ADD", host.conf({names.REQUEST: "[{}]"}))["code"] == 5
        assert host.call("DEL") == {"status": 0}
        host.record(SECOND, uid="u2")
        assert host.call("ADD", uid="u2", container="c2")["status"] == 0
        assert host.call("DEL", uid="u2", container="c2") == {"status": 0}
    finally:
        remove(path)


@ON_MLX5
def test_an_entry_that_is_cut_off_keeps_its_own_vf_only(host: Any) -> None:
    """Its text names no sandbox; the DEL of another pod gives back that pod's VF."""
    path = host.layout.state / "vfs" / OTHER_VF
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"v":1,"pci":"00')
    host.record(FIRST)
    assert host.call("ADD")["status"] == 0
    assert host.call("DEL") == {"status": 0}
    assert [file.name for file in path.parent.iterdir()] == [OTHER_VF]
    path.unlink()


@ON_MLX5
def test_the_server_repairs_beside_them(littered: Any) -> None:
    """A sandbox that died is repaired, and rates and marks are read: no pass ends at what is none of ours."""
    littered.record(FIRST)
    assert littered.call("ADD")["status"] == 0
    entry = littered.layout.state / "vfs" / f"{FIRST['pci']}.json"
    document = json.loads(entry.read_text())
    entry.write_text(json.dumps(document | {"phase": "returning"}))
    with littered.served("--reconcile-s", "0.2"):
        wait_until(lambda: not entry.exists())
    assert not [line for line in littered.log() if "unexpectedly" in line["event"]]
