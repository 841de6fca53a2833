"""VFs that pods are not to get are marked by `init`, for the host's udev rules; those that are still to be made too."""

from pathlib import Path

from advertiser.init.set_aside import mark_set_aside
from advertiser.inventory.facts import Host, PciFunction, Vf
from mooring.indexes import Indexes
from mooring.records.node_offer import PfOffer

PF, OTHER = "0000:04:00.0", "0000:05:00.0"
VFS = {0: Vf("0000:04:00.2", exists=True), 1: Vf("0000:04:00.3", exists=True)}


def marked(tmp_path: Path, function: PciFunction, offers: dict[str, PfOffer]) -> list[str]:
    mark_set_aside(tmp_path, tmp_path / "sys", Host("b", (function,)), offers)
    folder = tmp_path / "set-aside"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_marks_follow_the_offer(tmp_path: Path) -> None:
    """VF 0 is the host's, then VF 1, then none; a PF that is not on offer keeps all of its VFs."""
    function = PciFunction(PF, totalvfs="2", numvfs="2", vfs=VFS)
    aside = [{PF: PfOffer(set_aside=Indexes.of(indexes))} for indexes in ([0], [1], [])]
    assert [marked(tmp_path, function, offers) for offers in aside] == [["0000:04:00.2"], ["0000:04:00.3"], []]
    assert marked(tmp_path, function, {}) == ["0000:04:00.2", "0000:04:00.3"]


def test_vfs_are_marked_before_they_are_made(tmp_path: Path) -> None:
    """udev looks at a netdev when it appears."""
    function = PciFunction(OTHER, totalvfs="3", numvfs="0", offset="2", stride="1")
    assert marked(tmp_path, function, {OTHER: PfOffer(set_aside=Indexes.of([0, 2]))}) == [
        "0000:05:00.2",
        "0000:05:00.4",
    ]


def test_a_netdev_that_is_there_is_told(tmp_path: Path) -> None:
    """By the kernel's uevent, once for each change."""
    uevent = tmp_path / "sys/bus/pci/devices/0000:04:00.2/net/eth2/uevent"
    uevent.parent.mkdir(parents=True)
    uevent.write_text("")
    function = PciFunction(PF, totalvfs="2", numvfs="2", vfs=VFS)
    marked(tmp_path, function, {PF: PfOffer(set_aside=Indexes.of([0]))})
    assert uevent.read_text() == "change"
    uevent.write_text("")
    marked(tmp_path, function, {PF: PfOffer(set_aside=Indexes.of([0]))})
    assert uevent.read_text() == ""
