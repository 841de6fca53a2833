"""An installed node with the real host-local: a tenant's definition has addresses, and root writes nowhere else."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]

VF = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3"}
MINE = {"subnet": "10.57.0.0/24", "rangeStart": "10.57.0.9"}


def test_a_definition_writes_where_the_nodes_own_file_says(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain's ipam is the operator's as it stands; a definition's has ranges of its own."""
    config, plugin, foreign = tmp_path / "config.yaml", tmp_path / "cni.json", tmp_path / "foreign"
    config.write_text("{}\n")
    chains = host.conf()["ipam"]
    plugin.write_text(json.dumps({"ipam": chains}))
    monkeypatch.setenv("MOORING_CONFIG", str(config))
    before = host.everything()
    host.record(VF)
    with host.served("--plugin", str(plugin)):
        bad = {**chains, "ranges": [[MINE]], "dataDir": str(foreign)}
        refused = host.call("ADD", host.conf(name="rail0", ipam=bad))
        assert refused["code"] == 7
        assert "configuration field 'ipam.dataDir'" in refused["msg"]
        assert not foreign.exists()
        assert host.everything() == before
        assert host.call("ADD", host.conf(name="rail0", ipam={**chains, "ranges": [[MINE]]}))["status"] == 0
        assert host.vf_addresses() == {"net1": ["10.57.0.9/24"]}
        assert host.call("DEL", host.conf(name="rail0", ipam=bad))["status"] == 0
        assert host.call("ADD")["status"] == 0
        assert host.vf_addresses()["net1"]
        assert host.call("DEL")["status"] == 0
