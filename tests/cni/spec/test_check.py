"""CHECK: what has changed since ADD is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cni.spec.calls import FIRST, SECOND, drift, in_pod, previous

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]


def test_check_names_each_drift(host: Any) -> None:
    """Changes made by others in the pod, on the PF and in the ledger; several at once are all named."""
    host.record(FIRST, SECOND)
    conf = host.conf()
    conf["prevResult"] = previous(host, host.call("ADD", conf))
    assert host.call("CHECK", conf) == {"status": 0}
    in_pod(host, "link", "set", "net1", "mtu", "1400")
    assert "vf 0000:04:00.3: interface 'net1' has mtu 1400, not 1500" in drift(host, conf)
    in_pod(host, "addr", "flush", "dev", "rdma7")
    named = drift(host, conf)
    assert "mtu 1400" in named
    assert "interface 'rdma7' has lost address '10.56" in named
    in_pod(host, "link", "set", "rdma7", "down")
    in_pod(host, "link", "set", "rdma7", "address", "02:00:00:00:00:78")
    named = drift(host, conf)
    assert "interface 'rdma7' is down" in named
    assert "interface 'rdma7' has mac '02:00:00:00:00:78', not '02:00:00:00:00:77'" in named
    in_pod(host, "link", "set", "rdma7", "address", "02:00:00:00:00:77")
    in_pod(host, "link", "set", "rdma7", "name", "other")
    assert "interface 'rdma7' is not in the pod" in drift(host, conf)
    in_pod(host, "link", "set", "other", "name", "rdma7")
    table = host.table()
    table["pfs"]["enp4s0f0"]["set"]["1"]["max_tx_rate"] = 30000
    host.layout.vftable.write_text(json.dumps(table))
    assert "max_tx_rate is 30000, not 20000" in drift(host, conf)
    path = host.layout.state / "vfs" / f"{FIRST['pci']}.json"
    entry = path.read_text()
    path.write_text(entry.replace('"held"', '"returning"'))
    assert "its ledger entry has phase 'returning', not 'held'" in drift(host, conf)
    path.unlink()
    assert f"vf {FIRST['pci']} is assigned to the pod, but the ledger has no entry for it in this sandbox" in drift(
        host, conf
    )
    path.write_text(entry)


def test_check_holds_the_result_against_what_is_there(host: Any) -> None:
    """The result is what is expected: an interface that it lacks, a MAC that a later plugin has set."""
    host.record(SECOND)
    conf = host.conf()
    result = previous(host, host.call("ADD", conf))
    assert "prevResult has no interface 'rdma7'" in drift(host, {**conf, "prevResult": {"cniVersion": "1.0.0"}})
    interfaces = [result["interfaces"][0], {**result["interfaces"][1], "mac": "02:00:00:00:00:79"}]
    later = {**conf, "prevResult": {**result, "interfaces": interfaces}}
    assert "has mac '02:00:00:00:00:77', not '02:00:00:00:00:79'" in drift(host, later)
    in_pod(host, "link", "set", "rdma7", "down")
    in_pod(host, "link", "set", "rdma7", "address", "02:00:00:00:00:79")
    in_pod(host, "link", "set", "rdma7", "up")
    assert host.call("CHECK", later) == {"status": 0}
    in_pod(host, "link", "set", "rdma7", "address", "02:00:00:00:00:77")
    missing = {name: value for name, value in conf.items() if name != "prevResult"}
    assert host.call("CHECK", missing)["code"] == 7
    assert host.call("CHECK", {**missing, "disableCheck": True}) == {"status": 0}


def test_check_asks_the_ipam_plugin_too(host: Any) -> None:
    """An address that host-local does not know any more is a drift like any other."""
    host.record(FIRST)
    conf = host.conf()
    conf["prevResult"] = previous(host, host.call("ADD", conf))
    (lease,) = (path for path in host.layout.ipam.rglob("10.*") if path.is_file())
    kept = lease.read_bytes()
    lease.unlink()
    assert "ipam plugin 'host-local' failed (CHECK)" in drift(host, conf)
    lease.write_bytes(kept)


def test_check_of_a_pod_without_vfs_is_silent(host: Any) -> None:
    """The pod requested no VF: CHECK has nothing to examine."""
    assert host.call("CHECK", host.conf(None)) == {"status": 0}
