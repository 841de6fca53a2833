"""`init` on PFs that are ports of one bond: both show the bond's MAC, and their VFs' addresses are different ones."""

from pathlib import Path

import pytest

from advertiser.host.read_host import Roots
from advertiser.init import pci_driver
from advertiser.init.prepare_pf import PfPreparer
from advertiser.inventory.offer import Init, Offer, OfferEntry, Terms
from devcluster.hosts.nic import Host, describe_host
from devcluster.hosts.pci_bus import PciBus
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from tests.advertiser.init.nics import FIRST, SECOND, Nic, TableNic, device

OFFER = Offer((OfferEntry((), Terms(init=Init(2, end_lag=True))),))


class Machine:
    """A host with two PFs of two VFs each, after a boot."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, bonded: bool, bound: bool) -> None:
        self.host: Host = describe_host("n1", 1, pfs=2, vfs=2)
        build(root / "sys", self.host)
        self.roots = Roots(root / "sys", root / "state", root / "run")
        self.table = VfTable(root / "vftable.json")
        self.table.reset(self.host)
        for pf in (FIRST, SECOND) if bonded else ():
            (netdev,) = (device(self.roots, pf) / "net").iterdir()
            # bond_enslave gives every port the bond's MAC.
            (netdev / "address").write_text("10:70:fd:6d:9e:3a\n")
            (netdev / "bonding_slave").mkdir()
        if not bound:
            for physfn in (root / "sys/bus/pci/devices").glob("*/physfn"):
                (physfn.parent / "driver").unlink()
                (physfn.parent / "driver_override").write_text("\n")
        if bound:
            monkeypatch.setattr(pci_driver, "write", PciBus(root / "sys", self.host, self.table).write)

    def macs(self) -> list[str]:
        """Run `init`; return the MACs of all VFs, PF by PF."""
        assert PfPreparer(self.roots, TableNic(self.table), lambda *_: None).prepare_all(OFFER, "n1") == ()
        return [str(vf.mac) for pf in self.host.pfs for vf in self.table.read_all(pf.name).values()]


@pytest.mark.parametrize("bound", [False, True])
def test_each_vf_has_a_mac_of_its_own_and_the_same_at_every_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, bound: bool
) -> None:
    """`bound`: somebody else made the VFs, and `init` gives each a node GUID by its MAC. A boot may make no bond."""
    macs = Machine(tmp_path / "first", monkeypatch, bonded=True, bound=bound).macs()
    assert len(set(macs)) == 4
    assert Machine(tmp_path / "second", monkeypatch, bonded=False, bound=bound).macs() == macs


def test_a_kernel_without_permanent_addresses_leaves_a_bonded_pf_unprepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.6 the bond's MAC is all there is, and it is the other port's, too."""
    machine = Machine(tmp_path, monkeypatch, bonded=True, bound=False)
    failures = PfPreparer(machine.roots, Nic(), lambda *_: None).prepare_all(OFFER, "n1")
    assert [str(failure).partition(",")[0] for failure in failures] == [
        f"enp4s0f{pf}: the PF is a port of a bond or bridge" for pf in (0, 1)
    ]
