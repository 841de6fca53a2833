"""NICs as init changes them."""

from collections.abc import Iterable
from pathlib import Path

from advertiser.host.read_host import Roots
from advertiser.init.prepare_pf import PfPreparer
from advertiser.inventory.offer import Init, Offer, OfferEntry, Terms
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings

FIRST, SECOND = "0000:04:00.0", "0000:04:00.1"


class Nic:
    """Takes every setting, and keeps a list."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.found: dict[int, VfSettings] = {}
        self.brought_up: list[str] = []
        self.mtus: dict[str, int] = {}
        self.rates: dict[str, dict[int, VfSettings]] = {}
        self.cleared: list[tuple[str, list[int]]] = []

    def bring_up(self, pf: str) -> None:
        self.brought_up.append(pf)

    def permanent_address(self, pf: str) -> str | None:
        return None

    def set_mtu(self, pf: str, mtu: int) -> None:
        self.mtus[pf] = mtu

    def read_all(self, pf: str) -> dict[int, VfSettings]:
        return self.rates.get(pf, self.found)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.cleared.append((pf, list(vfs)))

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.told.append((pf, vf))

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        self.told.append((pf, vf))


class TableNic:
    """The VF table of PFs: it takes what their drivers take."""

    def __init__(self, table: VfTable) -> None:
        self.table = table

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.table.write(pf, vf, settings)

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        self.table.write(pf, vf, VfSettings(guid=guid))

    def bring_up(self, pf: str) -> None:
        self.table.set_up(pf, up=True)

    def permanent_address(self, pf: str) -> str | None:
        return self.table.permanent_address(pf)

    def set_mtu(self, pf: str, mtu: int) -> None:
        self.table.change_pf(pf, mtu=mtu)

    def read_all(self, pf: str) -> dict[int, VfSettings]:
        return dict(self.table.read_all(pf))

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.table.clear_rates(pf, vfs)


def device(roots: Roots, pci: str) -> Path:
    return roots.sysfs / "bus/pci/devices" / pci


def prepared(roots: Roots, nic: Nic | None = None) -> tuple[list[str], list[str]]:
    """Return what could not be prepared, as text, and the PFs of which every VF was counted."""
    done: list[str] = []
    offer = Offer((OfferEntry((), Terms(init=Init(2))),))
    preparer = PfPreparer(roots, nic or Nic(), lambda pf, count, of: done.extend([pf] * (count == of)))
    return [str(failure) for failure in preparer.prepare_all(offer, "n1")], done


def offer_of(init: Init, share: int = 0) -> Offer:
    return Offer((OfferEntry((), Terms(init=init, default_share_mbps=share)),))


def unbound(tmp_path: Path, nic: str) -> tuple[Roots, VfTable]:
    """A host with two PFs of a driver, whose two VFs each have no driver yet."""
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    roots = Roots(tmp_path / nic, tmp_path / "state", tmp_path / "run")
    build(roots.sysfs, host)
    for pf in (FIRST, SECOND):
        (device(roots, pf) / "sriov_drivers_autoprobe").write_text("1\n")
    for physfn in (roots.sysfs / "bus/pci/devices").glob("*/physfn"):
        (physfn.parent / "driver").unlink()
        (physfn.parent / "driver_override").write_text("\n")
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    return roots, table
