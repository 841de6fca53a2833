"""What keeps pods from VFs, and what lies in the folders of the records, is left for the advertiser, and counted."""

import os
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from cni.kernel.sysfs import Sysfs
from cni.server.extracts import make_folders
from cni.server.metrics import Metrics
from cni.server.vf_faults import FaultReport
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from mooring.records.vf_faults import NAME, ForeignEntry, VfFaults, dump_vf_faults, read_vf_faults
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.foreign import FOREIGN


class Host:
    """A node's folders, and the report of its server."""

    def __init__(self, root: Path, *, awaits_init: bool = False, ipam_files: tuple[str, ...] | None = None) -> None:
        self.state, self.run = root / "state", root / "run"
        self.state.mkdir(mode=0o700)
        make_folders(self.run)
        node = Node(Sysfs(root / "sys"), Ledger(self.state, self.run), self.run, NoVfSettings(), "boot")
        self.metrics = Metrics()
        self.report = FaultReport(lambda: node, self.metrics, ipam_files, awaits_init=awaits_init)

    def found(self) -> VfFaults:
        self.report.look()
        return read_vf_faults((self.run / NAME).read_text())

    def page(self) -> str:
        return generate_latest(self.metrics.registry).decode()


def test_a_node_without_faults_says_so(tmp_path: Path) -> None:
    """Its own records are no foreign entries, nor are leftovers of interrupted writes."""
    host = Host(tmp_path)
    for name in ("pods/u1.json", "pods/u1.unprivileged", "rates/u1.json", "vfs/.x.1.tmp"):
        (host.state / name).parent.mkdir(exist_ok=True)
        (host.state / name).write_text("")
    (host.run / "version/mooring-cni").write_text("1")
    (host.run / "init/preparing/0000:04:00.0").write_text("1")
    assert host.found() == VfFaults()
    assert "mooring_cni_vf_faults 0.0" in host.page()


@pytest.mark.root
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_none_of_ours_is_named_with_its_reason(tmp_path: Path, kind: str) -> None:
    """In each folder of records; the page counts them."""
    host = Host(tmp_path)
    folders = [host.state / name for name in ("vfs", "pods", "rates")]
    folders += [host.run / name for name in ("sandboxes", "extract/vfs", "extract/pods", "version", "init/preparing")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        FOREIGN[kind](folder / os.fsdecode(b"x\xff"))
    found = host.found()
    assert {Path(entry.path).parent for entry in found.foreign} == set(folders)
    assert all(entry.path.endswith("x\\udcff") and entry.why for entry in found.foreign)
    assert (found.unavailable, found.count) == ("", 8)
    assert "mooring_cni_foreign_entries 8.0" in host.page()


def test_a_ledger_file_that_is_no_entry_is_named(tmp_path: Path) -> None:
    """It is of ours by its name and owner, and fails no GC."""
    host = Host(tmp_path)
    broken = host.state / "vfs/0000:04:00.1.json"
    broken.parent.mkdir()
    broken.write_text("{")
    (entry,) = host.found().foreign
    assert (entry.path, "not valid JSON" in entry.why) == (str(broken), True)
    assert "mooring_cni_foreign_entries 1.0" in host.page()


def test_an_offer_that_is_cut_off_and_a_node_that_is_not_prepared_keep_all_vfs(tmp_path: Path) -> None:
    """ADD would refuse each; STATUS says nothing of it."""
    host = Host(tmp_path, awaits_init=True)
    (host.state / "offer.json").write_text("{")
    why = host.found().unavailable
    assert "the node's offer cannot be read: record 'offer.json'" in why
    assert "mooring-advertiser init has not finished" in why
    (host.state / "offer.json").write_text('{"v":1,"pfs":{}}')
    (host.run / "init/ready").write_text("")
    assert host.found() == VfFaults()


def test_a_folder_that_cannot_be_written_keeps_all_vfs(tmp_path: Path) -> None:
    """The ledger's entry is written before anything is changed."""
    host = Host(tmp_path)
    host.state.rmdir()
    host.state.symlink_to("/proc/1")
    assert "state folder" in host.found().unavailable


def test_an_ipam_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    """One rail's plugin keeps that rail's VFs only."""
    own = tmp_path / "cni.json"
    own.write_text('{"networks":{"rail0":{"ipam":{"type":"nonesuch"}}}}')
    host = Host(tmp_path, ipam_files=(str(own),))
    found = host.found()
    assert (found.unavailable, found.faults) == ("", ("ipam plugin 'nonesuch' is not in '/opt/cni/bin'",))


def test_a_report_is_bounded() -> None:
    """A folder may hold any number of entries with names of any length."""
    foreign = tuple(ForeignEntry(f"/x/{number}" + "y" * 600, "z" * 600) for number in range(100))
    read = read_vf_faults(dump_vf_faults(VfFaults("u" * 600, ("f" * 600,) * 60, foreign, 100)))
    assert (len(read.foreign), len(read.faults), read.count) == (50, 50, 100)
