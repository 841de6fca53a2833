"""Reading a whole host: one thing that cannot be read hides no other."""

from pathlib import Path

import pytest

from advertiser.host import Roots, read_host

PCI = "0000:04:00.5"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    return Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run")


def test_a_ledger_entry_that_is_no_file_is_one_that_cannot_be_read(roots: Roots) -> None:
    """Its VF stays out; the host is read all the same."""
    (roots.state / f"vfs/{PCI}.json").mkdir(parents=True)
    assert read_host(roots).ledger == {PCI: None}


def test_what_is_no_file_is_no_programs_version(roots: Roots) -> None:
    """The versions are for people; none of them may cost a node its inventory."""
    (roots.run / "version/old").mkdir(parents=True)
    (roots.run / "version/mooring-cni").write_text("1.2\n")
    assert read_host(roots).programs == {"mooring-cni": "1.2"}
