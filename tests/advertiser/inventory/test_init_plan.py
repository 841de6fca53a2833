"""What init decides about a PF, and the words for what forbids it."""

import errno
import struct
from dataclasses import replace

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from advertiser.init.pf_link import with_team
from advertiser.inventory.facts import EswitchMode, Netdev, PciFunction, Vf
from advertiser.inventory.init_plan import ForbiddenError, plan, refusal, settings_in_order, vf_guid, vf_mac
from advertiser.inventory.offer import Init, read_offer
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import guid_attributes

PF = "0000:3b:00.0"


def function(numvfs: int, total: int = 16, driver: str = "mlx5_core", *, netdev: bool = True) -> PciFunction:
    vfs = {index: Vf(f"0000:3b:00.{index + 2}", exists=True, driver=driver, netdev=netdev) for index in range(numvfs)}
    return PciFunction(PF, totalvfs=str(total), numvfs=str(numvfs), driver=driver, vfs=vfs)


@pytest.mark.parametrize(
    ("present", "wanted", "recreate", "vfs"), [(0, 4, True, 4), (4, 4, False, 4), (2, 4, True, 4), (0, None, True, 16)]
)
def test_vfs_are_recreated_only_where_their_number_differs(
    present: int, wanted: int | None, recreate: bool, vfs: int
) -> None:
    decided = plan(function(present), "eth0", "ethernet", Init(wanted), {})
    assert (decided.recreate, decided.vfs, decided.driver) == (recreate, vfs, "mlx5_core")


@pytest.mark.parametrize(("driver", "bound"), [("ice", "iavf"), ("igb", "igbvf"), ("bnxt_en", "bnxt_en")])
def test_a_vf_gets_the_driver_of_its_maker(driver: str, bound: str) -> None:
    assert plan(function(0, driver=driver), "eth0", "ethernet", Init(2), {}).driver == bound
    assert plan(function(0, driver=driver), "eth0", "ethernet", Init(2, driver="vfio-pci"), {}).driver == "vfio-pci"


def test_a_vf_in_use_forbids_another_number_and_is_named() -> None:
    """A VF is in use by the ledger, or once it has left the host's network namespace.

    The present number stays allowed.
    """
    with pytest.raises(
        ForbiddenError, match=r"has 2 VFs, the offer asks for 4, and 1 are in use: 0000:3b:00.2 \(its ledger"
    ):
        plan(function(2), "eth0", "ethernet", Init(4), {"0000:3b:00.2": None})
    with pytest.raises(ForbiddenError, match="no netdev in the host"):
        plan(function(2, netdev=False), "eth0", "ethernet", Init(4), {})
    assert not plan(function(2, netdev=False), "eth0", "ethernet", Init(2), {"0000:3b:00.2": None}).recreate


def test_an_infiniband_vf_that_left_the_host_forbids_another_number_too() -> None:
    """One with vfio-pci, or in another namespace, is in use; one without IPoIB is there by its RDMA device alone."""
    there = replace(function(2, netdev=False), netdevs=(Netdev("ib0"),))
    with pytest.raises(ForbiddenError, match="no netdev in the host"):
        plan(there, "ib0", "infiniband", Init(4), {})
    vfs = {index: replace(vf, lacks_netdev=True, rdma=True) for index, vf in there.vfs.items()}
    assert plan(replace(there, vfs=vfs), "ib0", "infiniband", Init(4), {}).recreate


def test_a_pf_in_switchdev_mode_is_left_as_it_is() -> None:
    """The mode is devlink's, else that of a representor. The command back is printed. Devlink's other answer stands."""
    switched = replace(function(0), netdevs=(Netdev("eth1", phys_port_name="pf0vf0"),))
    told: tuple[tuple[PciFunction, EswitchMode | None], ...] = ((function(0), "switchdev"), (switched, None))
    for pf, mode in told:
        with pytest.raises(ForbiddenError, match=r"^eth0: the PF is in switchdev mode.*pci/0000:3b:00.0 mode legacy`"):
            plan(pf, "eth0", "ethernet", Init(2), {}, mode)
    assert plan(switched, "eth0", "ethernet", Init(2), {}, "legacy").vfs == 2


@pytest.mark.parametrize(
    ("pf", "wish", "is_refused"),
    [
        (function(0), Init(4), True),
        (function(0), Init(4, end_lag=True), False),
        # It has VFs, so that there is no LAG to end; and another driver makes none of this kind.
        (function(2), Init(4), False),
        (function(2), Init(2), False),
        (function(0, driver="ice"), Init(4), False),
    ],
)
def test_vfs_do_not_end_a_roce_lag_unless_the_offer_says_so(pf: PciFunction, wish: Init, is_refused: bool) -> None:
    """mlx5_lag_is_roce_lag and mlx5_lag_check_prereq in Linux 6.12: bonded PFs have one only without VFs."""
    bonded = replace(pf, netdevs=(Netdev("eth0", type="1", bonded=True),))
    assert plan(replace(bonded, netdevs=(Netdev("eth0", type="1"),)), "eth0", "ethernet", wish, {}).vfs == wish.vfs
    if is_refused:
        with pytest.raises(ForbiddenError, match=r"^eth0: the PF is in a bond or team: .*`end_lag: true` beside"):
            plan(bonded, "eth0", "ethernet", wish, {})
    else:
        assert plan(bonded, "eth0", "ethernet", wish, {}).vfs == wish.vfs


def test_infiniband_pfs_in_a_bond_have_no_roce_lag_to_end() -> None:
    """mlx5_lag_add_netdev of Linux 6.12 is called for Ethernet netdevs (en_main.c, en_rep.c), never for IPoIB."""
    bonded = replace(function(0), netdevs=(Netdev("ib0", type="32", bonded=True),))
    assert plan(bonded, "ib0", "infiniband", Init(4), {}).vfs == 4


@pytest.mark.parametrize(("kind", "is_refused"), [("team", True), ("bridge", False), (None, False)])
def test_a_roce_lag_of_a_team_is_kept_too(kind: str | None, is_refused: bool) -> None:
    """netif_is_lag_master in mlx5_handle_changeupper_event of Linux 6.12: a bond or a team. sysfs names only bonds."""
    pf = replace(function(0), netdevs=(Netdev("eth0", type="1"),))
    found = with_team(pf, "eth0", {"eth0": kind}.get)
    if is_refused:
        with pytest.raises(ForbiddenError, match=r"^eth0: the PF is in a bond or team: .*`end_lag: true`"):
            plan(found, "eth0", "ethernet", Init(4), {})
    else:
        assert plan(found, "eth0", "ethernet", Init(4), {}).vfs == 4


def test_an_infiniband_pf_without_a_netdev_gets_no_vfs_from_init() -> None:
    """GUIDs and link states go through it, and no port of such VFs would become active."""
    with pytest.raises(ForbiddenError, match=r"^0000-3b-00.0: the PF has no netdev.*load ib_ipoib"):
        plan(function(0), "0000-3b-00.0", "infiniband", Init(4), {})


def test_a_limit_of_the_firmware_is_told_with_what_to_do() -> None:
    with pytest.raises(ForbiddenError, match=r"the offer asks for 64 VFs, but sriov_totalvfs is 16: .*NUM_OF_VFS=64"):
        plan(function(0), "eth0", "ethernet", Init(64), {})
    with pytest.raises(ForbiddenError, match=r"SR-IOV is off in the device's firmware.*SRIOV_EN=1"):
        plan(function(0, total=0), "eth0", "ethernet", Init(None), {})
    with pytest.raises(ForbiddenError, match="sriov_numvfs is 'x', not a number"):
        plan(PciFunction(PF, totalvfs="8", numvfs="x"), "eth0", "ethernet", Init(1), {})


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOMEM, "above 4G decoding"),
        (errno.EIO, "firmware is at fault"),
        (errno.EROFS, "read-only"),
        (errno.ENOENT, "mlx5"),
    ],
)
def test_each_refusal_of_the_kernel_comes_with_advice(code: int, advice: str) -> None:
    text = str(refusal(function(0), "eth0", "sriov_numvfs", "8", OSError(code, "")))
    assert text.startswith(f"eth0: the kernel rejected sriov_numvfs 8 ({errno.errorcode[code]}): ")
    assert advice in text


def test_macs_and_guids_are_stable_local_and_distinct() -> None:
    """For 1,000 VFs on each of the two PFs of one NIC, and on another maker's PF with the same last bytes."""
    pfs = ("0c:42:a1:12:34:56", "0c:42:a1:12:34:57", "b4:96:91:12:34:56")
    macs = [vf_mac(pf, index) for pf in pfs for index in range(1000)]
    assert len(set(macs)) == 3000
    assert macs == [vf_mac(pf, index) for pf in pfs for index in range(1000)]
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs)
    guids = {vf_guid(f"0c42:a103:0012:345{digit}", index) for digit in "67" for index in range(1000)}
    assert len(guids) == 2000
    assert all(len(guid.split(":")) == 8 for guid in guids)


def test_settings_are_written_one_by_one_in_an_order_that_drivers_take() -> None:
    wishes = settings_in_order(VfSettings(trust=False, spoofchk=True), "02:00:00:00:00:01")
    assert [list(wish.to_fields()) for wish in wishes] == [
        ["mac"],
        ["min_tx_rate", "max_tx_rate"],
        ["trust"],
        ["spoofchk"],
    ]


@pytest.mark.parametrize(
    ("driver", "left_out"), [("mlx5_core", ()), ("mlx4_core", ("trust",)), ("igb", ("link_state",)), ("new_nic", ())]
)
def test_settings_that_a_driver_has_no_operation_for_are_left_out(driver: str, left_out: tuple[str, ...]) -> None:
    """One rule serves several NICs; an unknown driver gets every setting."""
    wishes = VfSettings(trust=False, spoofchk=True, link_state="enable")
    decided = plan(function(0, driver=driver), "eth0", "ethernet", Init(2, wishes), {})
    assert decided.left_out == left_out
    assert decided.settings == replace(wishes, **dict.fromkeys(left_out))


@pytest.mark.parametrize(
    ("driver", "wish", "result"),
    [("mlx5_core", None, True), ("mlx5_core", False, False), ("ice", None, True), ("new_nic", None, None)],
)
def test_an_ethernet_vf_has_spoof_check_on_unless_the_offer_says_otherwise(
    driver: str, wish: bool | None, result: bool | None
) -> None:
    """Nothing else: its link state stays. A driver that may not have the operation is not asked for it."""
    decided = plan(function(0, driver=driver), "eth0", "ethernet", Init(2, VfSettings(spoofchk=wish)), {})
    assert decided.settings == VfSettings(spoofchk=result)


def test_spoof_check_follows_the_mac() -> None:
    """mlx5 compares frames with the MAC that the VF has then (esw_acl_ingress_lgcy_setup)."""
    decided = plan(function(0), "eth0", "ethernet", Init(2), {})
    order = [name for wish in settings_in_order(decided.settings, "02:00:00:00:00:01") for name in wish.to_fields()]
    assert order.index("mac") < order.index("spoofchk")


def test_a_guid_travels_as_the_kernel_reads_it() -> None:
    """struct ifla_vf_guid is u32 vf, four bytes of padding, and the GUID as a u64 of the host's byte order."""
    message = ifinfmsg()
    message["attrs"] = [("IFLA_VFINFO_LIST", guid_attributes("port", 3, "02:01:9a:00:00:da:d2:c8"))]
    message.encode()
    # struct nlmsghdr and struct ifinfomsg have 16 bytes each; then three nested attributes: the list (22), one VF (1),
    # its port GUID (11).
    listed, of_vf, guid = (struct.unpack_from("=HH", message.data, 32 + 4 * depth) for depth in range(3))
    assert [kind & 0x3FFF for _, kind in (listed, of_vf, guid)] == [22, 1, 11]
    assert struct.unpack_from("=I4xQ", message.data, 44) == (3, 0x02019A0000DAD2C8)


def test_the_offer_says_what_init_makes() -> None:
    document = (
        '{"v":1,"pfs":[{"init":{"vfs":"max","trust":true,"driver":"vfio-pci"}},{"init":{"vfs":8,"end_lag":true},"port":"own"}],'
        '"rdma_netns":"exclusive"}'
    )
    offer = read_offer(document, "offer.yaml")
    inits = [rule.terms.init for rule in offer.entries if rule.terms is not None]
    assert inits == [Init(None, VfSettings(trust=True), "vfio-pci"), Init(8, end_lag=True)]
    assert [rule.terms.port for rule in offer.entries if rule.terms is not None] == [None, "own"]
    assert offer.rdma_netns == "exclusive"
