"""Captured, unpacked elsewhere and read again, a host gives the answer that it gave at home."""

import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advertiser.__main__ import main
from advertiser.formats.capture_record import FILE, dump_capture_record
from advertiser.host.capture import capture, with_capture_record
from advertiser.host.read_host import Roots, read_host
from advertiser.host.sysfs import read_functions
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, EswitchMode, Host, PciFunction
from advertiser.inventory.offer import EVERYTHING, Offer, read_offer
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.errors import RecordError
from mooring.nic.node_guid import NO_NODE_GUIDS
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from tests.support.simulated_nics import EACH, Nic

Tree = Mapping[str, Any]
MAC = "02:11:22:33:44:55"


def entry(address: str, uid: str) -> LedgerEntry:
    return LedgerEntry(
        pci=address,
        pf="ens1f0np0",
        vf=0,
        phase="held",
        boot="then",
        uid=uid,
        pod="secret/name",
        container="c1",
        ifname="net1",
        netns=Netns("/run/netns/n", 1),
        original=Original(netdev_mac=MAC),
        set=VfSettings(mac=MAC),
    )


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack the archive in an empty folder; return its sysfs."""
    folder.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(folder)], check=True)
    return folder / "sys"


def there_and_back(host: Host, sysfs: Path, tmp_path: Path) -> Host:
    """Return the host as another machine reads it, which has its own boot, ledger and altnames."""
    capture(sysfs, host, tmp_path / "host.tar.gz")
    unpacked = unpack(tmp_path / "host.tar.gz", tmp_path / "elsewhere")
    functions = read_functions(unpacked)
    here = Host("another", functions, {"0000:04:00.2": entry("0000:04:00.2", "theirs")}, altnames={"eth0": ("x",)})
    return with_capture_record(here, unpacked)


def judged(host: Host, offer: Offer = EVERYTHING) -> InventoryResult:
    return build_inventory(host, offer, ClusterFacts(), "n1")


def test_every_layout_is_judged_alike_at_home_and_elsewhere(
    layout: Tree, tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """The archive has every fact that discovery reads, and records which files are absent."""
    sysfs = tree(layout)
    host = Host("then", read_functions(sysfs))
    back = there_and_back(host, sysfs, tmp_path)
    assert [unmasked(function) for function in host.functions] == [unmasked(function) for function in back.functions]
    assert judged(host) == judged(back)


def unmasked(function: PciFunction) -> PciFunction:
    """Return a function for which the input contains only whether it has a switch id and a system image GUID."""
    netdevs = (replace(one, phys_switch_id="masked" if one.phys_switch_id else None) for one in function.netdevs)
    devices = (replace(one, sys_image_guid="masked" if one.sys_image_guid else None) for one in function.rdma)
    vfs = {index: replace(vf, node_guid="masked" if vf.node_guid else None) for index, vf in function.vfs.items()}
    return replace(function, netdevs=tuple(netdevs), rdma=tuple(devices), vfs=vfs)


def test_identities_become_numbers_that_stay_equal(
    named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """Two PFs on one cable are so elsewhere too, and no digit of the NIC's GUID leaves the host; zeros stay zeros."""
    sysfs = tree(named_layout("gb10-two-links"))
    (sysfs / "bus/pci/devices/0000:01:00.1/net/enp1s0f1np1/phys_switch_id").write_text("00000000\n")
    back = there_and_back(Host("then", read_functions(sysfs)), sysfs, tmp_path)
    switches = [function.netdevs[0].phys_switch_id for function in back.functions]
    guids = [function.rdma[0].sys_image_guid for function in back.functions]
    assert switches == ["0000000000000002", "00000000", "0000000000000002"]
    assert guids == ["0000:0000:0000:0001"] * 3
    assert [pf.port for pf in judged(back).inventory.pfs] == ["0000:01:00.0", None, "0000:01:00.0"]


@pytest.mark.parametrize("nic", EACH)
def test_show_says_the_same_of_the_unpacked_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nic: Nic
) -> None:
    """The two commands on a tree with everything that a real one has, also about VFs without a node GUID.

    On InfiniBand such VFs are not named: `init` or a pod sets one there.
    """
    build(tmp_path / "sys", nic.host(vfs=4))
    for device in (tmp_path / "sys/bus/pci/devices/0000:04:00.2/infiniband").iterdir():
        (device / "node_guid").write_text("0200:01ff:fe00:0000\n")
    elsewhere = tmp_path / "elsewhere"
    flags = ["--node-name", "n1", "--state", str(tmp_path / "state"), "--run", str(tmp_path / "run"), "-o", "json"]
    archive = tmp_path / "n1.tar.gz"
    assert main(["show", "--sysfs", str(tmp_path / "sys"), *flags]) == 0
    at_home = capsys.readouterr().out
    assert main(["capture", "--sysfs", str(tmp_path / "sys"), "--archive", str(archive), *flags]) == 0
    capsys.readouterr()
    assert main(["show", "--sysfs", str(unpack(archive, elsewhere)), *flags]) == 0
    assert at_home == capsys.readouterr().out
    assert len(json.loads(at_home)["inventory"]["pfs"]) == 2
    warned = ["1-3", "0-3"] if nic.link == "ethernet" else []
    assert [each["vfs"] for each in json.loads(at_home)["warnings"]] == warned


def test_the_archive_is_named_after_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --archive the archive is written to the current folder."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=1))
    monkeypatch.chdir(tmp_path)
    assert main(["capture", "--node-name", "n1", "--sysfs", "sys", "--state", "state", "--run", "run"]) == 0
    assert (tmp_path / "mooring-n1.tar.gz").exists()


@pytest.mark.parametrize("nic", EACH)
def test_no_hardware_address_and_no_pod_leaves_the_host(tmp_path: Path, nic: Nic) -> None:
    """The archive leaves out whatever sysfs and the ledger hold beyond what discovery reads."""
    described = nic.host(vfs=4)
    build(tmp_path / "sys", described, admin_macs=True)
    guids = {path.read_text().strip() for path in (tmp_path / "sys/devices").rglob("*_guid")} - NO_NODE_GUIDS
    secrets = [*(function.mac for function in described.functions()), *guids]
    at_home = "".join(text(path) for path in (tmp_path / "sys").rglob("*"))
    assert any(secret in at_home for secret in secrets)
    host = read_host(Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run"))
    by_mac = {"enp4s0f0": ("enx021122334455",)}
    host = replace(host, ledger={"0000:04:00.2": entry("0000:04:00.2", "pod-1")}, altnames=by_mac)
    capture(tmp_path / "sys", host, tmp_path / "host.tar.gz")
    unpack(tmp_path / "host.tar.gz", tmp_path / "elsewhere")
    told = "".join(text(path) for path in (tmp_path / "elsewhere").rglob("*"))
    assert "pod-1" in told
    for secret in (*secrets, MAC, "secret/name", "enx021122334455"):
        assert secret not in told


def text(path: Path) -> str:
    return f"{path.name} {path.read_text(errors='replace') if path.is_file() and not path.is_symlink() else ''}\n"


def test_what_sysfs_does_not_show_is_recalled(
    named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """Altnames decide what is on offer, the ledger which VFs are lost, `init` which PFs are being prepared."""
    sysfs = tree(named_layout("connectx6dx-inbox-ethernet"))
    host = Host(
        boot="then",
        functions=read_functions(sysfs),
        ledger={"0000:3b:00.2": entry("0000:3b:00.2", "pod-1"), "0000:3b:00.3": None},
        altnames={"ens1f0np0": ("enp59s0f0np0",), "ens1f1np1": ("enp59s0f1np1",)},
        programs={"mooring-cni": "0.1.0"},
        preparing=frozenset({"0000:3b:00.1"}),
    )
    offer = read_offer(json.dumps({"v": 1, "pfs": [{"match": {"name": "enp59s0f*"}, "network": "rail7"}]}), "offer")
    at_home = judged(host, offer)
    assert at_home == judged(there_and_back(host, sysfs, tmp_path), offer)
    reasons = {out.why for pf in at_home.inventory.pfs for out in pf.out}
    assert reasons == {"lost: on the host although pod pod-1 holds it", "its ledger entry cannot be read", "preparing"}


def test_a_file_that_cannot_be_read_is_there_and_unreadable_elsewhere(tmp_path: Path) -> None:
    """An sriov_numvfs that fails to read is not a missing SR-IOV capability."""
    folder = tmp_path / "sys/bus/pci/devices/0000:04:00.0"
    folder.mkdir(parents=True)
    # To open a socket fails by ENXIO, for root too.
    os.mknod(folder / "sriov_numvfs", stat.S_IFSOCK | 0o600)
    host = Host("then", read_functions(tmp_path / "sys"))
    back = there_and_back(host, tmp_path / "sys", tmp_path)
    assert [function.address for function in back.functions] == ["0000:04:00.0"]
    assert judged(host) == judged(back)


@pytest.mark.parametrize("nic", EACH)
def test_links_lead_to_each_other_as_the_kernels_do(tmp_path: Path, nic: Nic) -> None:
    """A later discovery may go by class/net, by physfn or by device: the archive has them, and none leads nowhere."""
    build(tmp_path / "sys", nic.host(vfs=2))
    capture(tmp_path / "sys", Host("then", ()), tmp_path / "host.tar.gz")
    unpacked = unpack(tmp_path / "host.tar.gz", tmp_path / "elsewhere")
    links = [path for path in unpacked.rglob("*") if path.is_symlink()]
    assert [link for link in links if not link.exists()] == []
    names = {str(link.relative_to(unpacked)) for link in links}
    assert {"class/net/enp4s0f0", "class/infiniband/mlx5_0", "class/infiniband_verbs/uverbs0"} <= names
    vf = unpacked / "bus/pci/devices/0000:04:00.2"
    assert (vf / "physfn/virtfn0").resolve() == vf.resolve()
    assert (unpacked / "class/net/enp4s0f0/device").resolve().name == "0000:04:00.0"


def test_equal_hosts_give_equal_small_archives(
    named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """A fixture that is captured again shows no change; 254 VFs take less than 100 KB."""
    sysfs = tree(named_layout("many-vfs-two-buses"))
    first, second = tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"
    size = capture(sysfs, Host("then", ()), first)
    assert size == capture(sysfs, Host("then", ()), second) == first.stat().st_size < 100_000
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert {member.uid for member in archive} == {0}


@pytest.mark.parametrize("spoilt", ["{", '{"v":2}', '{"v":1}'])
def test_a_record_that_cannot_be_read_is_named(spoilt: str, tmp_path: Path) -> None:
    """A damaged record would otherwise pass for a host without altnames and holders."""
    (tmp_path / FILE).write_text(spoilt)
    with pytest.raises(RecordError, match=FILE):
        with_capture_record(Host("b", ()), tmp_path / "sys")


def test_the_mode_that_devlink_reported_is_restored(
    named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path], tmp_path: Path
) -> None:
    """Both modes are restored, against a representor and without one. What the input lacks stays unknown."""
    sysfs = tree(named_layout("mlx5-switchdev"))
    modes: dict[str, EswitchMode] = {"0000:17:00.0": "legacy", "0000:18:00.0": "switchdev"}
    host = Host("then", read_functions(sysfs), eswitch=modes)
    back = there_and_back(host, sysfs, tmp_path)
    assert back.eswitch == modes
    assert [[out.why for out in pf.out] for pf in judged(back).inventory.pfs] == [[], ["the PF is in switchdev mode"]]


def test_a_record_of_before_devlink_was_asked_is_read(tmp_path: Path) -> None:
    """An archive in an old report is still an archive."""
    document = json.loads(dump_capture_record(Host("then", ())))
    del document["eswitch"]
    (tmp_path / FILE).write_text(json.dumps(document))
    here = Host("here", (), eswitch={"0000:17:00.0": "switchdev"})
    assert with_capture_record(here, tmp_path / "sys") == Host("then", ())
