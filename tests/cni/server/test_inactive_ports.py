"""InfiniBand VFs whose port has not become active 30 s after ADD are reported, with the pod and the state."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.server.inactive_ports import LIMIT_S, InactivePorts
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.vf_faults import InactivePort
from tests.cni.no_vf_settings import NoVfSettings

PF, VF0 = "enp4s0f0", "0000:04:00.1"
ENTRY = LedgerEntry(VF0, PF, 0, "held", "b", "u1", "ns/p", "c1", "net1", Netns("/run/netns/gone", 1), Original())
REPORT = InactivePort("ns/p", "u1", PF, 0, VF0, "INIT")


class Host:
    """A host whose VF 0 a pod holds, and a clock."""

    def __init__(self, root: Path, nic: str = "mlx5-infiniband") -> None:
        build(root / "sys", describe_host("n1", 1, pfs=1, vfs=1, nics=[nic]))
        (device,) = (root / "sys/bus/pci/devices" / VF0 / "infiniband").iterdir()
        self.port = device / "ports/1/state"
        self.port.write_text("2: INIT\n")
        self.node = Node(Sysfs(root / "sys"), Ledger(root / "state"), root / "run", NoVfSettings(), "b")
        self.node.ledger.write(ENTRY)
        self.now = 100.0
        self.ports = InactivePorts(lambda: self.now)

    def found_after(self, seconds: float) -> list[InactivePort]:
        self.now += seconds
        return list(self.ports.find(self.node))


def test_a_port_that_does_not_become_active_is_reported_until_it_is(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert [host.found_after(0), host.found_after(LIMIT_S - 1)] == [[], []]
    assert [host.found_after(1), host.found_after(10)] == [[REPORT], [REPORT]]
    host.port.write_text("4: ACTIVE\n")
    assert host.found_after(10) == []


def test_a_port_that_was_active_once_is_not_watched_but_for_the_next_pod(tmp_path: Path) -> None:
    """What a link does later is the fabric's, and the PF's own port shows it."""
    host = Host(tmp_path)
    host.port.write_text("4: ACTIVE\n")
    assert [host.found_after(0), host.found_after(LIMIT_S)] == [[], []]
    host.port.write_text("2: INIT\n")
    assert host.found_after(LIMIT_S) == []
    host.node.ledger.write(replace(ENTRY, container="c2", uid="u2"))
    assert [host.found_after(0), host.found_after(LIMIT_S)] == [[], [replace(REPORT, uid="u2")]]


@pytest.mark.parametrize(
    "entry",
    [
        replace(ENTRY, set=VfSettings(link_state="disable")),
        replace(ENTRY, phase="returning"),
        replace(ENTRY, boot="another"),
    ],
)
def test_a_port_that_is_not_to_be_active_is_not_reported(tmp_path: Path, entry: LedgerEntry) -> None:
    host = Host(tmp_path)
    host.node.ledger.write(entry)
    assert [host.found_after(0), host.found_after(LIMIT_S)] == [[], []]


def test_ports_of_ethernet_follow_their_netdevs(tmp_path: Path) -> None:
    """A pod takes its link down as it likes."""
    host = Host(tmp_path, "mlx5-ethernet")
    assert [host.found_after(0), host.found_after(LIMIT_S)] == [[], []]


def test_a_device_whose_namespace_is_gone_is_not_judged(tmp_path: Path) -> None:
    """In exclusive mode the host's folder is empty."""
    host = Host(tmp_path)
    host.port.parents[2].rename(tmp_path / "away")
    assert [host.found_after(0), host.found_after(LIMIT_S)] == [[], []]
