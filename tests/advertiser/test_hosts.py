"""Trees of real hosts (``hosts/``), seen through the programs: what is offered, and what is reported about the rest."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from advertiser.__main__ import main
from mooring.records.run_folder import READY

ARCHIVE = Path(__file__).parent / "hosts/hosts.tar.xz"
NO_SRIOV = "no sriov_totalvfs: SR-IOV is off in the device's firmware or in the BIOS, or the device does not support it"
SWITCHDEV = "the PF is in switchdev mode"
NO_RDMA = "none of its VFs has an RDMA device"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is right: by PF the VFs that may be used and the line rate in Mb/s; by PCI address why others may not."""

    usable: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)


def without_vfs(total: int, *addresses: str) -> dict[str, str]:
    return dict.fromkeys(addresses, f"no VFs: sriov_numvfs is 0 of {total}")


def given(kind: str, *addresses: str) -> dict[str, str]:
    why = f"the NIC is a VF that a hypervisor passed to this machine ({kind}), and a VF has no VFs"
    return dict.fromkeys(addresses, why)


OPENSHIFT = Answer(
    dict.fromkeys(("ens2f0", "ens2f1", "ens7f0", "ens7f1"), ("0-3", 100_000)),
    without_vfs(64, *(f"0000:22:00.{port}" for port in range(4))),
)
ANSWERS = {
    "01a-openshift-cx5-legacy-old-kernel": OPENSHIFT,
    "01b-openshift-cx5-legacy-kernel-5.14": OPENSHIFT,
    "02-cx4lx-legacy-switchid-linux7": Answer({"enp35s0f0np0": ("0-1", 25_000), "enp35s0f1np1": ("0-1", 25_000)}),
    "03-tester03-cx4lx-switchdev": Answer(said=dict.fromkeys(("0000:01:00.0", "0000:01:00.1"), SWITCHDEV)),
    "05-dgx-a100-ib-vfs": Answer(
        {"ibp75s0": ("0-7", 200_000), "ibp141s0": ("0-7", 200_000)},
        without_vfs(8, *(f"0000:{bus}.0" for bus in ("0c:00", "12:00", "54:00", "61:00", "94:00", "ba:00", "cc:00")))
        | without_vfs(8, "0000:61:00.1"),
    ),
    "06-hgx-cx7-ndr400-1vf": Answer(dict.fromkeys(("ibs5", "ibs12", "ibs13"), ("0", 400_000))),
    "07a-h100-cx7-ib-no-vfs": Answer(
        said=without_vfs(8, *(f"0000:{bus}:00.0" for bus in ("41", "54", "9d", "c1", "d3", "e5")))
    ),
    "09-azure-nd96-vm-vfs-are-the-nics": Answer(
        said=given("15b3:101c", *(f"010{port}:00:00.0" for port in range(1, 9)))
        | given("15b3:101a", "5b2e:00:02.0")
        | given("MANA", "7870:00:00.0")
    ),
    "10-aws-p4d-efa": Answer(
        said=given("EFA", *(f"0000:{bus}:1b.0" for bus in ("10", "20", "90", "a0"))) | given("ENA", "0000:00:05.0")
    ),
    "12-cisco-vic-usnic-many-vfs": Answer(
        said=dict.fromkeys(("0000:02:00.0", "0000:02:00.1"), NO_SRIOV)
        | dict.fromkeys(("0000:0b:00.0", "0000:0c:00.0", "0000:88:00.0"), NO_RDMA)
        | without_vfs(1, "0000:89:00.0")
    ),
    "15-gpu6000-gpu-vfs-domain-0001": Answer({"enP1p5s0f0np0": ("0-3", 100_000)}),
    "17-lantea-cx3-two-ports": Answer(said={"0000:04:00.0": "two ports on one PCI function"}),
    "23-cx7-sriov-off-in-firmware": Answer(said={"0000:41:00.0": NO_SRIOV}),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the trees."""
    folder = tmp_path_factory.mktemp("hosts")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "hosts"


def flags(sysfs: Path, tmp_path: Path) -> list[str]:
    return [
        "--sysfs",
        str(sysfs),
        "--state",
        str(tmp_path / "state"),
        "--run",
        str(tmp_path / "run"),
        "--node-name",
        "n1",
    ]


def shown(sysfs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main(["show", *flags(sysfs, tmp_path), "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def init(sysfs: Path, tmp_path: Path, match: str) -> "subprocess.CompletedProcess[str]":
    """Run `init` with an offer whose second entry makes VFs."""
    offer = tmp_path / "offer.yaml"
    entry = f"- match: {match}\n  init: {{vfs: 4}}\n"
    offer.write_text(f"v: 1\npfs:\n- match: {{name: other}}\n  offer: false\n{entry}")
    command = [sys.executable, "-m", "advertiser", "init", *flags(sysfs, tmp_path), "--offer", str(offer)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def usable(pf: Any) -> bool:
    return "out" not in pf


def test_every_tree_has_its_answer(hosts: Path) -> None:
    """A tree without an expected result proves nothing."""
    assert sorted(path.name for path in hosts.iterdir()) == sorted(ANSWERS)
    assert all((path / "ABOUT").is_file() for path in hosts.iterdir())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_real_host_is_seen_as_it_is(
    name: str, hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """VFs on offer and the reasons for the others are as expected. No GPU, NVMe drive or accelerator is mentioned."""
    found = shown(hosts / name / "sys", tmp_path, capsys)
    pfs = found["inventory"]["pfs"]
    assert {pf["name"]: (pf["vfs"], pf["mbps"]) for pf in pfs if usable(pf)} == ANSWERS[name].usable
    out = {pf["pci"]: entry["why"] for pf in pfs for entry in pf.get("out", []) if entry["vfs"] == pf["vfs"]}
    ignored = {left["pci"]: left["why"] for left in found["left_out"]}
    assert out | ignored == ANSWERS[name].said
    assert all(usable(pf) or pf["pci"] in out for pf in pfs)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_captured_host_is_seen_alike(
    name: str, hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive has the NICs without SR-IOV too."""
    at_home = shown(hosts / name / "sys", tmp_path, capsys)
    archive, elsewhere = tmp_path / "host.tar.gz", tmp_path / "elsewhere"
    assert main(["capture", *flags(hosts / name / "sys", tmp_path), "--archive", str(archive)]) == 0
    elsewhere.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(elsewhere)], check=True)
    assert at_home == shown(elsewhere / "sys", tmp_path, capsys)


@pytest.mark.parametrize(
    ("name", "match", "complaint"),
    [
        ("23-cx7-sriov-off-in-firmware", "{name: ens3np0}", f"can have VFs: 0000:41:00.0 ({NO_SRIOV})"),
        ("09-azure-nd96-vm-vfs-are-the-nics", "{driver: mlx5_core}", "0101:00:00.0 (the NIC is a VF that a hypervisor"),
        ("07a-h100-cx7-ib-no-vfs", "{name: ens3np0}", "no NIC of this node matches it (nearest is "),
        ("07a-h100-cx7-ib-no-vfs", "{name: ibs3, link: infiniband}", ": name 'ib"),
        ("07a-h100-cx7-ib-no-vfs", "{vendor: 10de}", "no NIC of this node matches it"),
    ],
)
def test_init_fails_where_an_entry_of_the_offer_finds_no_pf(
    name: str, match: str, complaint: str, hosts: Path, tmp_path: Path
) -> None:
    """The complaint names the entry, the NICs and why; the node is not marked as ready."""
    done = init(hosts / name / "sys", tmp_path, match)
    assert done.returncode == 1
    assert "pfs[1] of the offer has init, but " in done.stderr
    assert complaint in done.stderr
    assert not (tmp_path / "run" / READY).exists()


@pytest.mark.parametrize("match", ["{node: gpu-*}", "{node: other, name: ens3np0}"])
def test_an_entry_for_other_nodes_is_not_a_fault_of_this_one(match: str, hosts: Path, tmp_path: Path) -> None:
    """The same offer serves all nodes."""
    assert init(hosts / "23-cx7-sriov-off-in-firmware/sys", tmp_path, match).returncode == 0
    assert (tmp_path / "run" / READY).exists()
