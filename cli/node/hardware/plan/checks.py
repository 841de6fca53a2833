"""The checks of the hardware test: each is one question with an id; docs/hardware.md refers to the ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mooring.nic.settings import SETTING_NAMES

# Reads only; takes one free VF; sends traffic between two.
Stage = Literal["host", "vf", "traffic"]
# As Mooring expects; not so; an answer to which nothing is expected; it could not be asked; it has no meaning here.
Outcome = Literal["ok", "differs", "info", "not asked", "n/a"]
STAGES: tuple[Stage, Stage, Stage] = ("host", "vf", "traffic")


@dataclass(frozen=True, slots=True)
class Check:
    """One question; ``calls`` are the commands or calls that answer it.

    ``open``: no source that was read can tell the answer, because the firmware decides.
    """

    id: str
    stage: Stage
    question: str
    calls: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a check, and what was found as JSON values; ``why`` explains what differs or was not asked."""

    check: str
    outcome: Outcome
    found: Mapping[str, object]
    why: str = ""


CHECKS: tuple[Check, ...] = (
    Check("host.kernel", "host", "Which kernel, and which of Mooring's programs?", "uname, mooring's version"),
    Check("host.nic", "host", "Which NIC, driver and firmware?", "sysfs; ethtool -i PF; devlink dev info"),
    Check("host.discovery", "host", "Does the advertiser offer the PF?", "mooring-advertiser show -o json"),
    Check(
        "host.switch-mode",
        "host",
        "Does devlink report legacy mode, and which ports does it list?",
        "devlink dev eswitch show; devlink port show; phys_switch_id",
    ),
    Check(
        "host.ports",
        "host",
        "Is the port up, at which rate, and do other PFs share its switch id?",
        "sysfs: operstate, speed, dev_port, phys_switch_id",
    ),
    Check(
        "host.settings-reported",
        "host",
        "Does the PF report every setting of `can` that can be read?",
        "RTM_GETLINK of the PF with IFLA_VFINFO_LIST",
    ),
    Check(
        "host.pci",
        "host",
        "How do the VFs lie on the PCI bus, and in which IOMMU groups?",
        "sysfs: sriov_*, numa_node, iommu_group, sriov_drivers_autoprobe",
    ),
    Check("host.rdma-mode", "host", "Is the RDMA stack in exclusive mode?", "rdma system show; /sys/module"),
    Check(
        "host.rdma-users",
        "host",
        "Does the driver answer queries about the users of its RDMA devices?",
        "rdma resource show; rdma resource show qp",
        open=True,
    ),
    Check("host.limits", "host", "Which limits do containers inherit?", "systemctl show; getrlimit"),
    Check(
        "host.udev",
        "host",
        "Which rules rename netdevs and RDMA devices?",
        "udevadm info of a VF's netdev; /run/udev/control; rules with NAME or rdma_rename",
    ),
    Check("host.agents", "host", "Which other programs configure NICs here?", "/proc/*/comm; files of known agents"),
    Check(
        "sriov.numvfs",
        "vf",
        "How long does the driver take to make VFs, to bind them and to remove them?",
        "sysfs: sriov_numvfs, with --make-vfs on a PF without VFs",
        open=True,
    ),
    Check("vf.free", "vf", "Is there a VF that nobody uses?", "ledger, pod records, sysfs, ip, rdma resource show"),
    Check("vf.add", "vf", "How long does ADD take with every setting?", "mooring-cni ADD", open=True),
    *(
        Check(
            f"settings.{name.replace('_', '-')}",
            "vf",
            f"Does the NIC take {name}, and read back the same value?",
            "mooring-cni ADD with every setting; RTM_GETLINK of the PF with IFLA_VFINFO_LIST",
            open=True,
        )
        for name in SETTING_NAMES
    ),
    Check(
        "settings.recorded",
        "vf",
        "Does mlx5_core do with each value, and each order of two settings, what it did above the modelled chip?",
        "RTM_SETLINK and RTM_GETLINK of the PF, for each case of mlx5_settings.json",
        open=True,
    ),
    Check("vf.rdma-device", "vf", "Does the VF's RDMA device follow it?", "rdma dev show in the pod; sysfs"),
    Check(
        "port.active",
        "vf",
        "By which states does the VF's port become ACTIVE, and when?",
        "sysfs: ports/1/state of the RDMA device",
        open=True,
    ),
    Check(
        "mac.netdev",
        "vf",
        "Does the VF's netdev take a new admin MAC by itself, and when?",
        "RTM_SETLINK IFLA_VF_MAC on the PF; the netdev's address in the pod",
        open=True,
    ),
    Check(
        "mac.own",
        "vf",
        "May a VF that is not trusted change its own MAC, and what does the PF report then?",
        "RTM_SETLINK IFLA_ADDRESS in the pod with trust off; RTM_GETLINK of the PF",
        open=True,
    ),
    Check(
        "mac.unset",
        "vf",
        "Does the NIC take the MAC 00:00:00:00:00:00, and what is read back?",
        "RTM_SETLINK IFLA_VF_MAC on the PF",
        open=True,
    ),
    Check(
        "guid.node",
        "vf",
        "What is the VF's node GUID, and does it follow the admin MAC or GUID at a rebind?",
        "sysfs: node_guid before and after a rebind",
        open=True,
    ),
    Check(
        "guid.zero",
        "vf",
        "What do PF and VF report when the VF's GUID is set to zero?",
        "RTM_SETLINK IFLA_VF_IB_NODE_GUID on the PF, a rebind; sysfs: node_guid",
        open=True,
    ),
    Check(
        "rebind.time",
        "vf",
        "How long until netdev and RDMA device are back after a rebind, with the names that stay?",
        "driver_override, unbind, drivers_probe; sysfs",
        open=True,
    ),
    Check(
        "rebind.settings",
        "vf",
        "Does the PF keep the VF's settings over a rebind?",
        "RTM_GETLINK of the PF before and after",
        open=True,
    ),
    Check("vf.del", "vf", "How long does DEL take?", "mooring-cni DEL", open=True),
    Check("vf.restored", "vf", "Is the VF as it was before?", "sysfs, ip -j link, RTM_GETLINK, before and after"),
    Check(
        "traffic.free",
        "traffic",
        "How much RDMA traffic does one VF send without a limit?",
        "ib_write_bw -D",
        open=True,
    ),
    Check(
        "traffic.max-rate",
        "traffic",
        "Does the NIC hold RDMA traffic to max_tx_rate?",
        "ib_write_bw -D at each rate",
        open=True,
    ),
    Check(
        "traffic.burst",
        "traffic",
        "Does traffic that begins after a pause stay within max_tx_rate in its first second?",
        "ib_write_bw --run_infinitely",
        open=True,
    ),
    Check(
        "traffic.rate-change",
        "traffic",
        "Is a new max_tx_rate kept within two seconds, while traffic flows?",
        "ib_write_bw --run_infinitely; RTM_SETLINK IFLA_VF_RATE on the PF",
        open=True,
    ),
    Check(
        "traffic.min-rate",
        "traffic",
        "Do two senders that compete get at least their min_tx_rate?",
        "ib_write_bw -D of two pairs at the same time",
        open=True,
    ),
    Check(
        "traffic.counters",
        "traffic",
        "Do the VF's counters show known traffic?",
        "ib_write_bw -n; sysfs: port_xmit_data, port_rcv_data; RTM_GETLINK of the PF with IFLA_VF_STATS",
        open=True,
    ),
    Check(
        "traffic.vlan",
        "traffic",
        "Does a VLAN separate a VF from one without it?",
        "UDP between two pods, one with a VLAN",
        open=True,
    ),
    Check(
        "traffic.spoofchk",
        "traffic",
        "Does spoofchk drop frames with a foreign source MAC?",
        "AF_PACKET in one pod, received in the other, spoofchk on and off",
        open=True,
    ),
)
BY_ID: Mapping[str, Check] = {check.id: check for check in CHECKS}


def in_order(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return the answers in the order of the checks."""
    order = list(BY_ID)
    return tuple(sorted(answers, key=lambda answer: order.index(answer.check)))


def not_asked(stages: Sequence[Stage], answered: Sequence[Answer], why: str) -> list[Answer]:
    """Return the answers of the checks of ``stages`` that have none yet."""
    known = {answer.check for answer in answered}
    return [
        Answer(check.id, "not asked", {}, why) for check in CHECKS if check.stage in stages and check.id not in known
    ]


def exit_status(answers: Sequence[Answer], stages: Sequence[Stage]) -> int:
    """Return 0 if all of the stages is as expected, 1 if anything differs, else 2 if anything could not be asked."""
    outcomes = {answer.outcome for answer in answers if BY_ID[answer.check].stage in stages}
    return 1 if "differs" in outcomes else 2 if "not asked" in outcomes else 0


def differs(answers: Sequence[Answer]) -> bool:
    """Return whether anything is not as expected."""
    return any(answer.outcome == "differs" for answer in answers)
