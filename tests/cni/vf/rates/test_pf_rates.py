"""Rates on the simulated mlx5 PF, whose personality computes weights as the driver does."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.plan import attachment
from cni.spec.skel import CniError
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from cni.vf.rates import pf_rates
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original

PF, PF_PCI = "enp4s0f0", "0000:04:00.0"


@pytest.fixture
def table(tmp_path: Path) -> VfTable:
    host = describe_host("n1", 1, vfs=4)
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    return table


@pytest.fixture
def node(tmp_path: Path, table: VfTable) -> Node:
    return Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, "b")


def give(node: Node, vf: int, settings: VfSettings) -> None:
    """Set rates as ADD does, with the PF locked."""
    found = node.vf_settings.read_all(PF)
    pf_rates.check(node, PF_PCI, PF, {PF: found}, {PF: {vf: settings}}, ())
    pf_rates.enrol(node, PF_PCI, PF, found, [settings])
    node.vf_settings.write(PF, vf, settings)


def test_every_vf_takes_part_before_the_first_min_is_set(node: Node, table: VfTable) -> None:
    """Whoever made the VFs, and without `init`: none lies outside the scheduling, none weighs nothing."""
    give(node, 1, VfSettings(min_tx_rate=5000))
    assert table.weights(PF) == {0: 1, 1: 100, 2: 1, 3: 1}


def test_they_take_part_again_after_a_reload_of_the_pf(node: Node, table: VfTable) -> None:
    """All mins read 0 then, which is what tells it."""
    give(node, 1, VfSettings(min_tx_rate=5000))
    table.reload(PF)
    give(node, 2, VfSettings(min_tx_rate=1000, max_tx_rate=2000))
    assert table.weights(PF) == {0: 1, 1: 1, 2: 100, 3: 1}


def test_a_cap_alone_and_a_second_min_write_nothing_to_other_vfs(node: Node, table: VfTable) -> None:
    """A VF that has a rate keeps it."""
    give(node, 0, VfSettings(max_tx_rate=300))
    assert table.weights(PF) == {0: 0}
    give(node, 1, VfSettings(min_tx_rate=5000))
    assert table.read(PF, 0).max_tx_rate == 300
    give(node, 2, VfSettings(min_tx_rate=2500))
    assert table.weights(PF) == {0: 1, 1: 100, 2: 50, 3: 1}


def test_a_min_that_somebody_else_set_does_not_tell_that_vfs_take_part(node: Node, table: VfTable) -> None:
    """A person gave VF 3 a min by hand, on VFs that were made without `init`: the others have a weight of none."""
    table.write(PF, 3, VfSettings(min_tx_rate=2500))
    assert table.weights(PF).keys() == {3}
    give(node, 1, VfSettings(min_tx_rate=5000))
    assert table.weights(PF) == {0: 1, 1: 100, 2: 1, 3: 50}


def test_a_second_min_of_ours_writes_nothing_to_other_vfs(
    node: Node, table: VfTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has the first one, before which all were enrolled."""
    give(node, 1, VfSettings(min_tx_rate=5000))
    node.ledger.write(entry_of(1, VfSettings(min_tx_rate=5000), share=False))
    monkeypatch.setattr(VfTable, "clear_rates", lambda *_: pytest.fail("enrolled again"))
    give(node, 2, VfSettings(min_tx_rate=2500))
    assert table.weights(PF) == {0: 1, 1: 100, 2: 50, 3: 1}


def test_a_pf_that_refuses_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_table: VfTable, _pf: str, _vfs: Iterable[int]) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(VfTable, "clear_rates", refuse)
    with pytest.raises(CniError, match=r"pf 'enp4s0f0' refuses rates 0/0 for its vfs: EIO"):
        give(node, 1, VfSettings(min_tx_rate=5000))


def entry_of(vf: int, settings: VfSettings, *, share: bool) -> LedgerEntry:
    pci = f"0000:04:00.{vf + 2}"
    netns = Netns("/run/netns/x", 1)
    entry = LedgerEntry(pci, PF, vf, "held", "b", f"u{vf}", "ns/p", "c", "net1", netns, Original(), settings)
    return replace(entry, share=share)


def test_a_default_share_is_in_no_sum(node: Node) -> None:
    """The line rate is 100,000 Mb/s: a reservation counts whole, a share not at all."""
    share, reserved = VfSettings(min_tx_rate=60000), VfSettings(min_tx_rate=80000)
    node.vf_settings.write(PF, 0, share)
    with pytest.raises(CniError, match="min rates of 140000 Mb/s would exceed its line rate of 100000 Mb/s"):
        give(node, 1, reserved)
    node.ledger.write(entry_of(0, share, share=True))
    give(node, 1, reserved)
    found = node.vf_settings.read_all(PF)
    pf_rates.check(node, PF_PCI, PF, {PF: found}, {PF: {2: share}}, {(PF, 2)})
    with pytest.raises(CniError, match="min rates of 100001 Mb/s"):
        pf_rates.check(node, PF_PCI, PF, {PF: found}, {PF: {3: VfSettings(min_tx_rate=20001)}}, ())


@pytest.mark.parametrize(
    ("wished", "found", "expected"),
    [
        (VfSettings(), VfSettings(0, 0), (VfSettings(min_tx_rate=500), True)),
        (VfSettings(0, 300), VfSettings(0, 0), (VfSettings(300, 300), True)),
        (VfSettings(min_tx_rate=100), VfSettings(0, 0), (VfSettings(min_tx_rate=100), False)),
        # A driver that reports no rates has none.
        (VfSettings(), VfSettings(), (VfSettings(), False)),
    ],
)
def test_a_share_is_for_a_vf_without_a_min_and_within_its_cap(
    wished: VfSettings, found: VfSettings, expected: tuple[VfSettings, bool]
) -> None:
    assert attachment.with_default_share(wished, found, "ethernet", 500) == expected
    assert attachment.with_default_share(wished, found, "ethernet", 0) == (wished, False)
    assert attachment.with_default_share(wished, found, "infiniband", 500) == (wished, False)


def test_an_mtu_above_the_pfs_is_refused_in_words() -> None:
    vf = AssignedVf(PF, 3, "0000:04:00.5", "ethernet", "rail0", VfSettings())
    attachment.check_mtu(vf, 9000, 9000)
    attachment.check_mtu(vf, None, 1500)
    with pytest.raises(CniError) as refused:
        attachment.check_mtu(vf, 9000, 1500)
    assert refused.value.code == 101
    assert "vf 3 of pf 'enp4s0f0': mtu 9000 of network 'rail0' exceeds its pf's mtu of 1500" in str(refused.value)
