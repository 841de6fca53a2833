"""Firmware refuses a command after the PF's driver has changed the VF: the next pod may not spoof all the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings
from mooring.records.ledger import doubt_name
from tests.support.simulated_nics import MLX5

pytestmark = [
    pytest.mark.root,
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(not Path("/usr/lib/cni/host-local").exists(), reason="containernetworking-plugins is missing"),
]
PF, VF, VF_PCI = "enp4s0f0", 1, "0000:04:00.3"
MAC = "02:00:00:00:00:99"


@pytest.fixture
def table(host: Any) -> Iterator[VfTable]:
    """The PFs' settings, with spoof check on for the VF of every test here, as `init` leaves it."""
    table = VfTable(host.layout.vftable)
    own = table.read(PF, VF)
    table.write(PF, VF, VfSettings(mac=host.links()["enp4s0f0v1"]["address"], spoofchk=True))
    yield table
    table.write(PF, VF, VfSettings(mac=own.mac, spoofchk=False))


@pytest.mark.parametrize("wishes", [{"mac": MAC}, {"vlan": 7}, {"spoofchk": True}, {}])
def test_after_a_failed_add_and_its_del_the_vf_may_not_spoof(host: Any, table: VfTable, wishes: dict[str, Any]) -> None:
    """While the firmware refuses, no sandbox gets the VF: its entry stays, and the inventory has it out."""
    before = host.everything()
    host.record({"pf": PF, "vf": VF, "pci": VF_PCI, "link": MLX5.link, **wishes})
    table.change_pf(PF, firmware_refuses=1000)
    assert host.call("ADD")["code"] == 101
    assert host.call("DEL")["code"] == 101
    assert (host.layout.state / doubt_name(VF_PCI)).exists()
    table.change_pf(PF, firmware_refuses=0)
    assert host.call("DEL") == {"status": 0}
    assert table.checks_macs(PF, VF)
    assert host.everything() == before


def test_add_puts_a_spoof_check_in_force_that_somebody_was_refused(host: Any, table: VfTable) -> None:
    """As by `ip link set`: the PF reports it on, and the pod requests nothing."""
    before = host.everything()
    table.change_pf(PF, firmware_refuses=1)
    with pytest.raises(OSError, match="firmware command"):
        table.write(PF, VF, VfSettings(mac=table.read(PF, VF).mac))
    assert not table.checks_macs(PF, VF)
    host.record({"pf": PF, "vf": VF, "pci": VF_PCI, "link": MLX5.link})
    assert host.call("ADD")["status"] == 0
    assert table.checks_macs(PF, VF)
    assert host.call("DEL") == {"status": 0}
    assert host.everything() == before
