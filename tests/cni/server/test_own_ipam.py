"""Whose IPAM plugins a call runs as root: those that the node's own files name, whatever a tenant's definition says."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cni.forwarder import render
from cni.server.dispatch import Answer, answer
from mooring.nic.vf_settings import RtnetlinkVfSettings

RANGES = [[{"subnet": "10.56.0.0/16", "rangeStart": "10.56.1.10", "gateway": "10.56.0.1"}]]
HOST_LOCAL = {"type": "host-local", "dataDir": "/var/lib/vfs", "ranges": RANGES}
WHEREABOUTS = {
    "type": "whereabouts",
    "range": "10.57.0.0/16",
    "kubernetes": {"kubeconfig": "/etc/cni/whereabouts.conf"},
}
OWN = {"ipam": HOST_LOCAL, "networks": {"rail1": {"ipam": WHEREABOUTS}}}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The operator's file, and the runtime's folder with the chain that an operator has placed there."""
    own, chains = tmp_path / "cni.json", tmp_path / "net.d"
    own.write_text(json.dumps(OWN))
    chains.mkdir()
    static = {"type": "mooring-cni", "ipam": {"type": "static", "addresses": []}}
    chain = {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "ptp", "ipam": {"type": "dhcp"}}, static]}
    (chains / "10-a.conflist").write_text(json.dumps(chain))
    return own, chains


def call(files: tuple[Path, ...] | None, command: str = "ADD", **fields: object) -> Answer:
    """Make a call of a pod that the CRI shim has not recorded, as a definition of Multus is called."""
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/proc/self/ns/net",
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/nonexistent",
        "CNI_ARGS": "K8S_POD_UID=u;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p",
    }
    conf = {"cniVersion": "1.0.0", "name": "rail0", "type": "mooring-cni", **fields}
    named = None if files is None else tuple(map(str, files))
    places = dict.fromkeys(("state", "run", "sysfs"), "/nonexistent")
    return answer(
        environment, json.dumps(conf).encode(), RtnetlinkVfSettings, places, enforces_places=True, ipam_files=named
    )


@pytest.mark.parametrize(
    "ipam",
    [
        HOST_LOCAL,
        {
            "type": "host-local",
            "ranges": [[{"subnet": "fd00::/64"}]],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
        },
        {"type": "whereabouts", "range": "10.9.0.4-10.9.0.9/24", "exclude": ["10.9.0.5/32"]},
        {"type": "static", "addresses": [{"address": "10.9.0.4/24"}], "dns": {"search": ["my-ns.svc.example"]}},
        {},
    ],
)
def test_a_definition_chooses_among_the_nodes_own_plugins(ipam: dict[str, Any], files: tuple[Path, Path]) -> None:
    """It may give addresses of its own."""
    assert call(files, ipam=ipam).code == 0
    assert call(files, networks={"rail0": {"ipam": ipam}}).code == 0


@pytest.mark.parametrize(
    ("ipam", "field"),
    [
        ({"type": "dhcp", "daemonSocketPath": "/tmp/s"}, "type"),
        ({"type": "host-local", "ranges": RANGES, "dataDir": "/etc"}, "dataDir"),
        ({"type": "host-local", "ranges": RANGES, "resolvConf": "/dev/zero"}, "resolvConf"),
        ({"type": "host-local", "ranges": [[{"subnet": "../../etc"}]]}, "ranges"),
        ({"type": "whereabouts", "range": "10.9.0.0/24", "log_file": "/etc/cron.d/x"}, "log_file"),
        ({"type": "whereabouts", "kubernetes": {"kubeconfig": "/tmp/k"}}, "kubernetes"),
        ({"type": "static", "addresses": [{"address": "/etc/shadow"}]}, "addresses"),
    ],
)
def test_any_other_plugin_or_path_is_refused(ipam: dict[str, Any], field: str, files: tuple[Path, Path]) -> None:
    """The plugin would run as root with what a tenant writes."""
    for fields, place in (({"ipam": ipam}, "ipam"), ({"networks": {"a": {"ipam": ipam}}}, "networks.a.ipam")):
        refused = call(files, **fields)
        assert refused.code == 7
        assert f"configuration field '{place}.{field}'" in json.loads(refused.text)["msg"]


def test_a_plain_pods_chain_goes_on_and_none_is_called(files: tuple[Path, Path]) -> None:
    """A chain whose file this program does not read must not take the network of pods without VFs."""
    foreign = {"type": "dhcp"}
    previous = {"cniVersion": "1.0.0", "interfaces": [], "ips": []}
    assert call(files, ipam=foreign, prevResult=previous).code == 0
    assert call(files, "DEL", ipam=foreign).code == 0


def test_names_of_the_nodes_own_networks_are_not_a_tenants(files: tuple[Path, Path]) -> None:
    """host-local keeps a folder for each name: the cluster's addresses would be given out from the pool of a tenant."""
    ranges = {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/16"}]]}
    assert call(files, name="cbr0", ipam=HOST_LOCAL).code == 0
    refused = call(files, name="cbr0", ipam=ranges)
    assert "'cbr0' is one of this node's own networks" in json.loads(refused.text)["msg"]
    for name in ("../cbr0", "..", "a/b", ".hidden"):
        assert call(files, name=name, ipam=HOST_LOCAL).code == 7


def test_files_that_others_may_write_name_nothing(files: tuple[Path, Path]) -> None:
    """Nor do files that are absent, are no JSON, or are no files."""
    own, chains = files
    assert call((own, chains), ipam=HOST_LOCAL).code == 0
    own.chmod(0o666)
    assert call((own, chains), ipam=HOST_LOCAL).code == 7
    own.chmod(0o644)
    own.write_text("{")
    assert call((own, chains), ipam=HOST_LOCAL).code == 7
    own.unlink()
    assert call((own, chains), ipam=HOST_LOCAL).code == 7
    own.symlink_to("/dev/zero")
    assert call((own, chains), ipam=HOST_LOCAL).code == 7
    assert call((), ipam=HOST_LOCAL).code == 7


@pytest.mark.root
def test_a_chain_of_roots_counts_in_whosever_folder(files: tuple[Path, Path]) -> None:
    """kubespray's /etc/cni/net.d is another user's; a file of that user's names nothing."""
    own, chains = files
    static = {"type": "static", "addresses": [{"address": "10.9.0.4/24"}]}
    os.chown(chains, 1000, -1)
    assert call((own, chains), ipam=static).code == 0
    os.chown(chains / "10-a.conflist", 1000, -1)
    assert call((own, chains), ipam=static).code == 7


def test_a_machine_that_is_not_installed_runs_any(tmp_path: Path) -> None:
    """No tenant writes configurations there."""
    assert call(None, ipam=HOST_LOCAL).code == 0


def test_this_program_is_no_ipam_plugin() -> None:
    """It would call itself without end."""
    for files in ((), None):
        refused = call(files, ipam={"type": "mooring-cni"})
        assert refused.code == 7
        assert "is this plugin itself" in json.loads(refused.text)["msg"]


def test_a_call_from_an_ipam_plugin_of_ours_ends_at_once(tmp_path: Path) -> None:
    """Whatever name it was called by: the mark of such a plugin is inherited."""
    executable = tmp_path / "another-name"
    executable.write_text(render(str(tmp_path / "no.sock"), ["/bin/false"]))
    executable.chmod(0o755)
    marked: Mapping[str, str] = {"MOORING_IPAM": "1", "CNI_COMMAND": "ADD"}
    done = subprocess.run([executable], input=b"{}", env=marked, capture_output=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == 7
    assert "an ipam plugin that mooring-cni called has called mooring-cni" in json.loads(done.stdout)["msg"]
