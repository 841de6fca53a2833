"""One VF at a time: held, lost, unexplained, drained, moving."""

from dataclasses import replace

import pytest

from advertiser.inventory.facts import ClusterFacts, Host, Vf
from advertiser.inventory.vf_state import PfContext, Reason, VfLayout, unusable_reason
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original, Phase

ADDRESS = "0000:04:00.5"
EXPECTED = VfLayout("0000:04:00.2", 1, 8)
HOME = Vf(ADDRESS, exists=True, driver="mlx5_core", netdev=True, rdma=True)
AWAY = replace(HOME, netdev=False, rdma=False)
ENTRY = LedgerEntry(
    pci=ADDRESS,
    pf="enp4s0f0",
    vf=3,
    phase="held",
    boot="now",
    uid="pod-1",
    pod="default/train",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/n", 1),
    original=Original(),
    set=VfSettings(min_tx_rate=5000),
)
LIVE = frozenset({("pod-1", "enp4s0f0", 3, ADDRESS)})


def why(
    vf: Vf | None,
    entry: LedgerEntry | None = None,
    claims: ClusterFacts | None = None,
    unsettled: frozenset[str] = frozenset(),
    obstacle: str | None = None,
) -> Reason | None:
    host = Host("now", (), {ADDRESS: entry} if entry else {}, unsettled)
    setting = PfContext(host, claims or ClusterFacts(LIVE), "enp4s0f0", obstacle)
    return unusable_reason(3, vf, EXPECTED, setting)


def test_a_vf_in_the_hosts_namespace_may_be_used() -> None:
    """Bound, with netdev and RDMA device, held by no pod."""
    assert why(HOME) is None


@pytest.mark.parametrize("phase", ["taking", "held", "returning"])
def test_a_vf_in_a_live_pod_stays_on_offer_without_its_netdev(phase: Phase) -> None:
    """Use is derived from assignments: listing the VF as out would count it twice."""
    assert why(AWAY, replace(ENTRY, phase=phase)) is None


def test_a_holder_that_no_live_assignment_explains_is_named_with_its_rate() -> None:
    """After a forced deletion the node still holds the VF and its share of the bandwidth."""
    assert why(AWAY, ENTRY, ClusterFacts(frozenset())) == ("held by pod pod-1", 5000)


def test_another_vf_of_the_same_pod_explains_nothing() -> None:
    """The pod's uid is not enough: its assignment must name this VF."""
    other = ("pod-1", "enp4s0f0", 4, "0000:04:00.6")
    assert why(AWAY, ENTRY, ClusterFacts(frozenset({other}))) == ("held by pod pod-1", 5000)


@pytest.mark.parametrize("before", [("pod-1", "eth0", 3, ADDRESS), ("pod-1", "enp4s0f0", 4, ADDRESS)])
def test_an_assignment_of_a_pf_or_vf_by_its_former_name_explains_nothing(before: tuple[str, str, int, str]) -> None:
    """The scheduler counts an assignment by PF, VF and address: under a new name the VF would be free for it."""
    assert why(AWAY, ENTRY, ClusterFacts(frozenset({before}))) == ("held by pod pod-1", 5000)


def test_without_a_cluster_holders_are_taken_as_explained() -> None:
    """`show` works without a cluster, and then accepts every holder."""
    assert why(AWAY, ENTRY, ClusterFacts(None)) is None


def test_a_held_vf_found_in_the_hosts_namespace_is_lost() -> None:
    """The pod's netns died without a DEL: the pod has lost its VF."""
    assert why(HOME, ENTRY) == ("lost: on the host although pod pod-1 holds it", 0)


@pytest.mark.parametrize("phase", ["taking", "returning"])
def test_a_vf_being_moved_may_be_in_the_hosts_namespace(phase: Phase) -> None:
    """Before the move and after the return the host rightly has the netdev."""
    assert why(HOME, replace(ENTRY, phase=phase)) is None


def test_an_entry_of_another_boot_makes_no_vf_lost() -> None:
    """Another boot's entry does not show where the VF should be."""
    assert why(HOME, replace(ENTRY, boot="before")) is None


@pytest.mark.parametrize(("vf", "entry"), [(AWAY, None), (HOME, ENTRY)])
def test_what_changed_while_we_read_is_not_judged(vf: Vf, entry: LedgerEntry | None) -> None:
    """A VF just taken is neither missing nor lost."""
    assert why(vf, entry, unsettled=frozenset({ADDRESS})) is None
    assert why(vf, entry) is not None


def test_an_unreadable_ledger_entry_keeps_its_vf_out() -> None:
    """A pod may hold it."""
    setting = PfContext(Host("now", (), {ADDRESS: None}), ClusterFacts(LIVE), "enp4s0f0")
    assert unusable_reason(3, HOME, EXPECTED, setting) == ("its ledger entry cannot be read", 0)


@pytest.mark.parametrize("entry", ["enp4s0f0", "enp4s0f0/3"])
def test_a_drained_pf_or_vf_is_out(entry: str) -> None:
    """The whole PF or one VF can be drained."""
    assert why(HOME, claims=ClusterFacts(LIVE, frozenset({entry}))) == ("drained", 0)


@pytest.mark.parametrize("rdma_only", [True, False])
@pytest.mark.parametrize(("exclusive", "here"), [(True, True), (True, False), (False, True)])
def test_a_held_vf_that_is_its_rdma_device_alone_is_lost_where_that_is_back(
    exclusive: bool, here: bool, rdma_only: bool
) -> None:
    """In exclusive mode only: in shared mode the host sees the device all the time. A netdev is where it belongs."""
    vf = replace(HOME, netdev=rdma_only, lacks_netdev=not rdma_only, rdma_here=here)
    host = Host("now", (), {ADDRESS: replace(ENTRY, rdma_only=rdma_only)}, rdma_exclusive=exclusive)
    found = unusable_reason(3, vf, EXPECTED, PfContext(host, ClusterFacts(LIVE), "enp4s0f0", None, "infiniband"))
    lost = exclusive and here
    assert found == (("lost: on the host although pod pod-1 holds it", 0) if lost else None)


@pytest.mark.parametrize("entry", ["enp4s0f1", "enp4s0f0/30", "enp4s0"])
def test_a_drain_of_another_pf_or_vf_changes_nothing(entry: str) -> None:
    """Names must match as a whole."""
    assert why(HOME, claims=ClusterFacts(LIVE, frozenset({entry}))) is None


@pytest.mark.parametrize(
    ("vf", "reason"),
    [
        (None, "the VF is gone"),
        (Vf(None), "the VF is gone"),
        (replace(HOME, exists=False), "the VF is gone"),
        (replace(HOME, address="0000:04:00.6"), "its PCI address does not match sriov_offset and sriov_stride"),
        (replace(AWAY, driver=None), "no driver"),
        (replace(AWAY, driver="mlx5_vfio_pci"), "bound to mlx5_vfio_pci"),
        (AWAY, "no netdev in the host's network namespace"),
        (replace(HOME, rdma=False), "no RDMA device"),
    ],
)
def test_what_is_wrong_with_a_vf_that_nobody_holds(vf: Vf | None, reason: str) -> None:
    """Each fault has its own text."""
    assert why(vf) == (reason, 0)


def test_an_obstacle_of_the_pf_is_every_vfs() -> None:
    """In switchdev mode no VF is handed out, even if nothing else is wrong with it."""
    assert why(HOME, obstacle="the PF is in switchdev mode") == ("the PF is in switchdev mode", 0)
