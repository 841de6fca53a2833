"""Rebinding a VF's driver, on a tree of files that a simulated PCI bus keeps."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cni.kernel import driver
from cni.kernel.sysfs import Sysfs
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build

PF, VF = "0000:04:00.0", "0000:04:00.2"
OWN = "mlx5_core"


@dataclass(slots=True)
class PciBus:
    """What the kernel does with what is written to a VF's files: of Linux 6.12, drivers/pci/pci-driver.c.

    ``pci_match_device``: a function with a driver_override matches that driver alone. ``pci_device_can_probe``: a VF
    whose PF has sriov_drivers_autoprobe 0 is probed only if it has one. A write to drivers_probe that leads to no probe
    succeeds.
    """

    root: Path
    dies_after: str | None = None
    written: list[str] = field(default_factory=list)

    def write(self, path: Path, text: str) -> None:
        self.written.append(path.name)
        functions = {"driver_override": self._override, "unbind": self._unbind, "drivers_probe": self._probe}
        functions[path.name](path, text)
        if path.name == self.dies_after:
            raise KeyboardInterrupt

    def _override(self, path: Path, text: str) -> None:
        path.write_text((text.strip() or "(null)") + "\n")

    def _unbind(self, path: Path, pci: str) -> None:
        link = self.root / "bus/pci/devices" / pci / "driver"
        assert link.readlink().name == path.parent.name
        link.unlink()

    def _probe(self, _: Path, pci: str) -> None:
        device = self.root / "bus/pci/devices" / pci
        override = (device / "driver_override").read_text().strip()
        is_named = override != "(null)"
        if is_named or (device / "physfn/sriov_drivers_autoprobe").read_text().strip() == "1":
            (device / "driver").symlink_to(self.root / "bus/pci/drivers" / (override if is_named else OWN))


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PciBus:
    """A host's PCI bus, whose one PF has sriov_drivers_autoprobe 0."""
    build(tmp_path, describe_host("n1", 1, vfs=2))
    (device(tmp_path, PF) / "sriov_drivers_autoprobe").write_text("0\n")
    bus = PciBus(tmp_path)
    monkeypatch.setattr(driver, "_write", bus.write)
    return bus


def device(root: Path, pci: str) -> Path:
    return root / "bus/pci/devices" / pci


def state(bus: PciBus) -> tuple[str | None, str]:
    """Return the VF's driver and its driver_override."""
    return Sysfs(bus.root).driver(VF), (device(bus.root, VF) / "driver_override").read_text().strip()


@pytest.mark.parametrize("autoprobe", ["0", "1"])
def test_a_vf_has_its_driver_again_whatever_autoprobe_is(bus: PciBus, autoprobe: str) -> None:
    """With autoprobe off drivers_probe binds nothing of itself; the override that helps it is gone afterwards."""
    (device(bus.root, PF) / "sriov_drivers_autoprobe").write_text(f"{autoprobe}\n")
    driver.rebind(Sysfs(bus.root), VF)
    assert state(bus) == (OWN, "(null)")
    assert "unbind" in bus.written


def test_an_override_of_somebody_elses_stays(bus: PciBus) -> None:
    """The operator's driver_override decides which driver the VF gets."""
    (device(bus.root, VF) / "driver_override").write_text("vfio-pci\n")
    driver.rebind(Sysfs(bus.root), VF)
    assert state(bus) == ("vfio-pci", "vfio-pci")


def test_a_rebind_that_died_after_the_unbind_is_finished(bus: PciBus) -> None:
    """The override was written before: it records whose VF this is, also for another process."""
    bus.dies_after = "unbind"
    with pytest.raises(KeyboardInterrupt):
        driver.rebind(Sysfs(bus.root), VF)
    driver.finish_rebind(Sysfs(bus.root), VF)
    assert state(bus) == (OWN, "(null)")


def test_a_rebind_that_died_before_it_cleared_the_override_is_finished(bus: PciBus) -> None:
    """Else the next rebind took it for the operator's; an override of another driver is his and stays."""
    bus.dies_after = "drivers_probe"
    with pytest.raises(KeyboardInterrupt):
        driver.rebind(Sysfs(bus.root), VF)
    assert state(bus) == (OWN, OWN)
    driver.finish_rebind(Sysfs(bus.root), VF)
    assert state(bus) == (OWN, "(null)")
    (device(bus.root, VF) / "driver_override").write_text("vfio-pci\n")
    driver.finish_rebind(Sysfs(bus.root), VF)
    assert state(bus) == (OWN, "vfio-pci")


def test_a_vf_that_no_driver_takes_is_an_error(bus: PciBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """drivers_probe does not report a failed probe: the VF has no driver, and belongs to no pod."""
    monkeypatch.setattr(PciBus, "_probe", lambda *_: None)
    with pytest.raises(OSError, match=f"no driver binds to {VF}"):
        driver.rebind(Sysfs(bus.root), VF)
