"""A host whose VFs are made already."""

from pathlib import Path

import pytest

from advertiser.host.read_host import Roots
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from tests.advertiser.init.nics import FIRST, SECOND, device


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host with two PFs whose two VFs have their drivers already: init finds nothing to make."""
    build(tmp_path / "sys", describe_host("n1", 1, vfs=2), admin_macs=True)
    roots = Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run")
    for pf in (FIRST, SECOND):
        (device(roots, pf) / "sriov_drivers_autoprobe").write_text("1\n")
        (next((device(roots, pf) / "net").iterdir()) / "address").write_text("0c:42:a1:12:34:56\n")
    return roots
