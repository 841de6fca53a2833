"""One node as its agent sees and changes it, on a stand-in for the host, in that host's own namespaces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.node.fleet.enter import HostProcess
from cli.node.fleet.host import FleetNode
from cli.node.fleet.runtime import Runtime
from mooring.records.node_install import NAME, read_node_install
from tests.cli.node.fleet.stand_in_host import StandInHost, runtime, stand_in_host

pytestmark = pytest.mark.root


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StandInHost]:
    with stand_in_host(tmp_path / "host") as made:
        yield made


def node(host: StandInHost, tmp_path: Path, version: str = "0.2.0", *, removes: bool = False) -> FleetNode:
    folder = tmp_path / version
    image = Runtime.at(folder) if folder.exists() else runtime(folder, version)
    settings = tmp_path / "settings"
    settings.mkdir(exist_ok=True)
    return FleetNode("n1", host.root, image, settings, removes=removes, process=HostProcess(host.process))


async def test_a_command_runs_in_the_namespaces_and_the_root_folder_of_the_host(host: StandInHost) -> None:
    """Its output comes line by line; its status is returned, and its errors."""
    (host.root / "told").write_text("by the host\n")
    lines: list[str] = []
    script = "cat /told; echo bad >&2; exit 3"
    ended = await HostProcess(host.process).run(["/bin/sh", "-c", script], lines.append)
    assert (ended.status, ended.output, ended.errors) == (3, "by the host\n", "bad\n")
    assert "by the host" in lines


async def test_a_node_is_installed_upgraded_and_downgraded_by_the_images_runtime(
    host: StandInHost, tmp_path: Path
) -> None:
    """The host runs it from the image; a node that is as desired differs in nothing."""
    first, second = node(host, tmp_path), node(host, tmp_path, "0.3.0")
    assert await first.difference() == "not installed"
    assert await first.change() == ""
    assert await first.difference() == ""
    names = [own.runtime.release for own in (first, second)]
    assert await second.difference() == f"release {names[0]!r} is installed, not {names[1]!r}"
    assert await second.change() == ""
    assert await first.change() == ""
    assert host.calls() == ["install", "upgrade", "upgrade"]


async def test_a_failure_is_reported_with_the_last_line_that_the_installation_printed(
    host: StandInHost, tmp_path: Path
) -> None:
    (host.root / "broken").touch()
    own = node(host, tmp_path)
    why = await own.change()
    assert why == "mooring-node install ended with 1: No space left on device"
    await own.report("failed", why)
    found = read_node_install((host.root / "run/mooring" / NAME).read_text())
    assert (found.phase, found.release, found.why) == ("failed", own.runtime.release, why)


async def test_what_an_installation_cannot_mend_keeps_a_node_unready_but_takes_no_turn(
    host: StandInHost, tmp_path: Path
) -> None:
    """A container without devices, or a NIC whose VFs cannot be made, would stop the whole fleet otherwise."""
    told: list[tuple[str, str]] = []
    own = node(host, tmp_path)
    own.reported = lambda state, text: told.append((state, text))
    assert await own.change() == ""
    host.find("containers", "default/a main", "runs without its devices: delete the pod")
    assert await own.difference() == ""
    await own.report("done", "")
    host.find("kubelet", "/var/lib/kubelet/config.yaml", "altered")
    assert await own.difference() == "/var/lib/kubelet/config.yaml: altered"
    assert told == [("done", "default/a main: runs without its devices: delete the pod")]


async def test_a_node_is_ready_before_the_advertisers_daemonset_has_its_release(
    host: StandInHost, tmp_path: Path
) -> None:
    """Or `kubectl rollout status` of the nodes would never end, and a fleet would stop at its first node."""
    told: list[tuple[str, str]] = []
    own = node(host, tmp_path)
    own.reported = lambda state, text: told.append((state, text))
    assert await own.change() == ""
    host.find("services", "mooring-advertiser", "runs version 0.2.0, but 0.3.0 is installed")
    assert await own.difference() == ""
    await own.report("done", "")
    assert told == [("done", "")]


async def test_the_clusters_cni_json_becomes_the_nodes_and_one_of_its_own_goes_first(
    host: StandInHost, tmp_path: Path
) -> None:
    own = node(host, tmp_path)
    assert await own.change() == ""
    for name, text in (("cni.json", '{"mtu": 1}'), ("cni.n2.json", "{}"), ("cni.n1.json", '{"mtu": 2}')):
        (tmp_path / "settings" / name).write_text(text)
    assert await own.difference() == "/etc/mooring/cni.json differs from the cluster's"
    assert await own.change() == ""
    assert (host.root / "etc/mooring/cni.json").read_text() == '{"mtu": 2}'
    assert await own.difference() == ""


async def test_an_installation_that_fails_leaves_the_nodes_cni_json(host: StandInHost, tmp_path: Path) -> None:
    """It is tried with the cluster's, which replaces the node's once it is done."""
    own = node(host, tmp_path)
    plugin = host.root / "etc/mooring/cni.json"
    (tmp_path / "settings/cni.json").write_text('{"mtu": 1}')
    (host.root / "broken").touch()
    assert await own.change() != ""
    assert host.lines()[-1].startswith("install --plugin /run/mooring/cni.json ")
    assert not plugin.parent.exists()
    (host.root / "broken").unlink()
    assert await own.change() == ""
    assert plugin.read_text() == '{"mtu": 1}'
    assert not (host.root / "run/mooring/cni.json").exists()


async def test_a_removal_waits_for_pods_and_leaves_nothing_that_the_installer_brought(
    host: StandInHost, tmp_path: Path
) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/cni.json").write_text("{}")
    assert await node(host, tmp_path).change() == ""
    ledger = host.root / "var/lib/mooring/vfs/0000:04:00.2.json"
    ledger.parent.mkdir()
    ledger.write_text("{")
    removal = node(host, tmp_path, removes=True)
    assert await removal.difference() == "Mooring is installed"
    # It does not wait until the node is Ready: what it removes may be why the node is not.
    assert removal.is_repair()
    assert await removal.obstacle() == "waits until pods give back their VFs: VF 0000:04:00.2"
    ledger.unlink()
    assert await removal.obstacle() == ""
    assert await removal.change() == ""
    assert await removal.difference() == ""
    assert not (host.root / "opt/mooring").exists()
    assert not (host.root / "etc/mooring/cni.json").exists()


async def test_a_removal_leaves_the_operators_own_files(host: StandInHost, tmp_path: Path) -> None:
    """A cni.json that no ConfigMap has, and what others keep below /opt/mooring."""
    assert await node(host, tmp_path).change() == ""
    (host.root / "etc/mooring").mkdir(parents=True, exist_ok=True)
    (host.root / "etc/mooring/cni.json").write_text("{}")
    removal = node(host, tmp_path, removes=True)
    assert await removal.change() == ""
    (host.root / "opt/mooring").mkdir()
    (host.root / "opt/mooring/own").touch()
    assert await removal.difference() == ""
    assert (host.root / "etc/mooring/cni.json").read_text() == "{}"


async def test_a_release_is_looked_for_in_the_folder_that_the_flags_name(host: StandInHost, tmp_path: Path) -> None:
    """Or a node on such a folder would be installed again and again."""
    own = node(host, tmp_path)
    assert await own.change() == ""
    (host.root / "opt").rename(host.root / "var/programs")
    assert await own.difference() == "not installed"
    own.install_flags = "--network none --folder=/var/programs/mooring"
    assert await own.difference() == ""
    # The check gets the flags too: it finds what they change on the node, or what contradicts them there.
    assert "check --network none --folder=/var/programs/mooring --output json --node-name n1" in host.lines()


async def test_flags_that_no_node_can_have_are_a_failure_before_anything_is_run(
    host: StandInHost, tmp_path: Path
) -> None:
    own = node(host, tmp_path)
    own.install_flags = "--network none --root /mnt"
    why = await own.change()
    assert why.startswith("install flags '--network none --root /mnt': '--root' is not one of --advertiser, ")
    assert await own.difference() == why
    assert host.lines() == []
