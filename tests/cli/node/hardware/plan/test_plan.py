"""What the hardware test decides: which VF it may take, what it tries, how it judges, what its report masks."""

import json
from dataclasses import replace

import pytest

from cli.node.hardware.plan import trial
from cli.node.hardware.plan.addresses import PfAddresses
from cli.node.hardware.plan.checks import BY_ID, CHECKS, STAGES, Answer, Outcome, differs, exit_status, not_asked
from cli.node.hardware.plan.free_vf import VfUse, choose, why_in_use
from cli.node.hardware.plan.report import Subject, as_json, as_text, build, file_name, masked
from cli.node.hardware.plan.trial import VfState
from mooring.nic.settings import SETTING_NAMES, VfSettings

PF = PfAddresses("b8:59:9f:12:34:56")
ADMIN_MAC, ADMIN_GUID = PF.mac(trial.ADMIN), PF.guid(trial.ADMIN)
FREE = VfUse(3, "0000:3b:00.5", "mlx5_core", "eth5")
FOUND = VfSettings(0, 0, trial.NO_MAC, 0, 0, trust=False, spoofchk=False, link_state="auto")
SUBJECT = Subject("15b3", "101d", "mlx5_core", "22.39.1002", "ethernet", 100_000, "6.8.0-45-generic", "x86_64", "0.1.0")


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ({}, None),
        ({"up": True}, None),
        ({"netdev": None}, None),
        ({"entered": True}, "the ledger has an entry"),
        ({"recorded": True}, "a pod record names it"),
        ({"driver": "vfio-pci"}, "its driver is vfio-pci"),
        ({"driver": "mlx5_vfio_pci"}, "its driver is mlx5_vfio_pci"),
        ({"driver": None}, "its driver is None"),
        ({"out": "drained"}, "drained"),
        ({"up": True, "addresses": ("192.0.2.1",)}, "its netdev has addresses"),
        ({"addresses": ("192.0.2.1",)}, "its netdev has addresses"),
        ({"upper": ("bond0",)}, "bond0 uses its netdev"),
        ({"users": 2}, "processes use its RDMA device"),
        ({"users": None}, "the users of its RDMA device are not known"),
    ],
)
def test_only_a_vf_that_nobody_uses_may_be_taken(use: dict[str, object], why: str | None) -> None:
    """One sign of a user is enough, and so is not knowing whether there is one."""
    assert why_in_use(replace(FREE, **use)) == why  # type: ignore[arg-type]


def test_the_last_free_vfs_are_taken() -> None:
    """The scheduler hands out the first ones first: the test and a pod rarely want the same VF."""
    vfs = [replace(FREE, index=index, entered=index == 6) for index in range(8)]
    assert [vf.index for vf in choose(vfs, 3)] == [4, 5, 7]
    assert choose([replace(FREE, entered=True)], 1) == ()


@pytest.mark.parametrize("found", [FOUND, VfSettings(), trial.trial(SETTING_NAMES, FOUND, PF)])
def test_every_setting_is_tried_with_another_value_than_was_found(found: VfSettings) -> None:
    """A value that the VF has already would be read back from a NIC that took nothing."""
    tried = trial.trial(SETTING_NAMES, found, PF)
    assert tuple(tried.to_fields()) == SETTING_NAMES
    same = [name for name in SETTING_NAMES if getattr(tried, name) == getattr(found, name)]
    assert [name for name in same if name not in ("mac", "guid")] == []


def test_only_settings_that_the_pf_supports_are_tried() -> None:
    """`can` is what the advertiser publishes of the driver."""
    assert trial.trial({"mac", "vlan"}, FOUND, PF) == VfSettings(mac=ADMIN_MAC, vlan=100)


def test_a_setting_that_is_refused_or_read_back_otherwise_differs() -> None:
    """One answer for each setting; refusals carry the message, and addresses are not told."""
    wanted = VfSettings(100, 1000, ADMIN_MAC, 100, 3, trust=True, spoofchk=True, link_state="enable")
    found = replace(wanted, max_tx_rate=992, trust=False, mac=trial.NO_MAC)
    answers = {answer.check: answer for answer in trial.read_back(wanted, found, {"trust": "not permitted"})}
    assert {answer.outcome for answer in answers.values()} == {"ok", "differs", "n/a"}
    assert [name for name, answer in answers.items() if answer.outcome == "differs"] == [
        *("settings.max-tx-rate", "settings.mac", "settings.trust")
    ]
    assert answers["settings.max-tx-rate"].found == {"wanted": 1000, "read": 992}
    assert answers["settings.trust"].why == "not permitted"
    assert answers["settings.mac"].found == {}
    assert answers["settings.guid"].outcome == "n/a"
    assert answers.keys() <= BY_ID.keys()


def test_settings_of_one_netlink_attribute_stay_together() -> None:
    """The kernel has one attribute for both: a priority alone would clear the VLAN, a max rate alone the min."""
    wanted = VfSettings(100, 1000, vlan=100, qos=3, trust=True)
    assert [trial.alone(name, wanted, ()) for name in wanted.to_fields()] == [
        VfSettings(min_tx_rate=100),
        VfSettings(min_tx_rate=100, max_tx_rate=1000),
        VfSettings(vlan=100),
        VfSettings(vlan=100, qos=3),
        VfSettings(trust=True),
    ]
    assert trial.alone("max_tx_rate", wanted, {"min_tx_rate"}) == VfSettings(max_tx_rate=1000)
    wanted = VfSettings(vlan=100, qos=3, trust=True)
    assert trial.without(wanted, {"vlan"}) == VfSettings(trust=True)
    assert trial.as_found(replace(wanted, mac=ADMIN_MAC), FOUND) == VfSettings(
        mac=ADMIN_MAC, vlan=0, qos=0, trust=False
    )


def test_every_part_of_a_vf_that_differs_after_its_life_is_named() -> None:
    """Names only: the values may be addresses."""
    before = VfState("mlx5_core", "mlx5_5", "eth5", ("enp1",), 1500, "02:00:00:00:00:01", up=False, settings=FOUND)
    assert trial.changed(before, before) == []
    values: dict[str, object] = {
        "driver": None,
        "rdma": "mlx5_7",
        "netdev": "eth9",
        "altnames": (),
        "mtu": 9000,
        "address": "02:00:00:00:00:02",
        "up": True,
    }
    for name, value in values.items():
        assert trial.changed(before, replace(before, **{name: value})) == [name]  # type: ignore[arg-type]
    after = replace(before, settings=replace(FOUND, max_tx_rate=1000, guid="02:00:00:00:00:00:00:01"))
    assert trial.changed(before, after) == ["settings.max_tx_rate", "settings.guid"]
    assert trial.changed(before, replace(before, settings=replace(FOUND, mac=before.address))) == []
    assert trial.changed(before, replace(before, settings=replace(FOUND, mac=ADMIN_MAC))) == ["settings.mac"]


def of_mac(mac: str, flipped: int = 0) -> str:
    """Return the node GUID that mlx5 makes of a MAC, as sysfs shows it."""
    digits = mac.replace(":", "")
    text = f"{int(digits[:2], 16) ^ flipped:02x}{digits[2:6]}fffe{digits[6:]}"
    return ":".join(text[at : at + 4] for at in range(0, 16, 4))


@pytest.mark.parametrize(
    ("guid", "kind"),
    [
        (None, "unreadable"),
        ("0000:0000:0000:0000", "zero"),
        ("0000:00ff:fe00:0000", "of-mac-zero"),
        (of_mac(ADMIN_MAC), "of-admin-mac"),
        (of_mac(ADMIN_MAC, 2), "of-admin-mac-flipped"),
        (ADMIN_GUID, "as-set"),
        ("506b:4b03:00ab:cdef", "other"),
    ],
)
def test_a_node_guid_is_described_and_not_shown(guid: str | None, kind: str) -> None:
    """mlx5 makes a VF's node GUID of its admin MAC, and 0000:00ff:fe00:0000 of MAC 0 (node_guid_gen_from_mac)."""
    assert trial.guid_kind(guid, ADMIN_MAC, ADMIN_GUID) == kind


def test_addresses_of_the_test_are_those_of_one_pf_and_one_purpose() -> None:
    """Two hosts that test on one network, or two PFs of one host, never use the same ones; another run does."""
    other = PfAddresses("b8:59:9f:12:34:57")
    names = (trial.ADMIN, trial.SECOND, trial.OWN, "traffic 0", "traffic 1")
    for make in (PfAddresses.mac, PfAddresses.guid):
        made = [make(pf, name) for pf in (PF, other) for name in names]
        assert len(set(made)) == len(made)
        assert made == [make(pf, name) for pf in (PF, other) for name in names]
        # Locally administered, and of one interface.
        assert all(int(each[:2], 16) & 3 == 2 for each in made)
    assert (len(ADMIN_MAC), len(ADMIN_GUID)) == (17, 23)


@pytest.mark.parametrize(
    "private",
    [
        "b8:59:9f:12:34:56",
        "B8-59-9F-12-34-56",
        "00:00:01:e7:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:12:34:56",
        "b859:9f03:0012:3456",
        "fe80:0000:0000:0000:ba59:9fff:fe12:3456",
        "254:128:00:00:00:00:00:00:184:89:159:255:254:18:52:86",
        "0xb8599f0300123456",
        "b8599f0300123456",
        "enxb8599f123456",
        "host7",
        "host7.example.org",
    ],
)
def test_addresses_guids_and_host_names_are_masked_wherever_they_stand(private: str) -> None:
    """In keys, values, lists and reasons: a report is sent to people who may not know them."""
    digits = private.removeprefix("enx").removeprefix("0x")
    answer = Answer("host.nic", "info", {private: {"list": [f"link {private}, up"]}}, f"refused on {private}")
    report = build(replace(SUBJECT, firmware=private), [answer], {"host7", "host7.example.org"})
    for text in (as_json(report), as_text(report)):
        assert digits not in text


def test_what_names_nobody_is_not_masked() -> None:
    """PCI addresses, firmware versions, kernels and board ids are what the report is for."""
    for text in ("0000:3b:00.2", "16.35.2000 (MT_0000000012)", "6.8.0-45-generic", "00.00.00", "214.0.286.1/pkg 214.0"):
        assert masked(text, ["host7"]) == text


def test_serial_numbers_are_left_out() -> None:
    """devlink dev info has them by these names."""
    info = {"driver": "ice", "serial_number": "12-34", "board.serial_number": "K1", "versions": {"fixed": {}}}
    report = build(SUBJECT, [Answer("host.nic", "info", {"devlink": info})], set())
    assert report.answers[0].found == {"devlink": {"driver": "ice", "versions": {"fixed": {}}}}


def test_a_report_is_named_after_nic_driver_firmware_and_kernel() -> None:
    """Reports of several hosts lie beside each other."""
    assert file_name(SUBJECT) == "mooring-hardware_15b3-101d_mlx5-core_22.39.1002_6.8.0-45-generic"
    assert file_name(replace(SUBJECT, firmware="")).split("_")[3] == "nofw"


def test_a_report_has_every_check_once_in_order_with_question_and_calls() -> None:
    """Both forms; the text counts the outcomes."""
    answers = [Answer("vf.add", "info", {"seconds": 0.5}), Answer("host.nic", "differs", {}, "no firmware")]
    answers += not_asked(STAGES, answers, "its flag was not given")
    report = build(SUBJECT, answers, set())
    document = json.loads(as_json(report))
    assert [each["id"] for each in document["answers"]] == [check.id for check in CHECKS]
    assert all(each["question"].endswith("?") and each["calls"] for each in document["answers"])
    assert document["ok"] is False
    text = as_text(report)
    assert f"0 ok, 1 differs, 1 info, {len(CHECKS) - 2} not asked, 0 n/a" in text
    assert "no firmware" in text


def test_only_what_differs_makes_the_test_fail() -> None:
    """An answer to an open question is not a failure, nor is a question that was not asked."""
    assert not differs([Answer("vf.add", "info", {}), Answer("host.nic", "ok", {}), Answer("vf.del", "not asked", {})])
    assert differs([Answer("vf.add", "info", {}), Answer("vf.restored", "differs", {})])


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (("ok", "info", "n/a"), 0),
        (("ok", "differs", "not asked"), 1),
        (("ok", "not asked"), 2),
        ((), 0),
    ],
)
def test_the_exit_status_says_whether_the_nic_is_as_believed(outcomes: tuple[Outcome, ...], status: int) -> None:
    """0 as believed, 1 something differs, 2 something could not be asked; stages that were not wanted do not count."""
    names = [check.id for check in CHECKS if check.stage == "vf"]
    answers = [Answer(name, outcome, {}) for name, outcome in zip(names, outcomes, strict=False)]
    answers += not_asked(["traffic"], answers, "its flag was not given")
    assert exit_status(answers, ["host", "vf"]) == status
