"""The CNI plugin on the lab kernel: real VFs, real RTNETLINK settings, the program unmodified.

On the plain NIC and on mlx5 Ethernet; tests/lab/test_infiniband.py has the same for InfiniBand.
"""

import json
from dataclasses import replace

import pytest

from tests.lab.calls.plain_calls import run
from tests.lab.nics import ETHERNET, MLX5, SIMVF, Lab, Nic

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("nic", ETHERNET)
def test_add_applies_the_assignment_and_del_restores_the_kernels_state(lab: Lab, nic: Nic) -> None:
    """Every setting is on the PF, the netdevs are in the pod; after DEL, and after a second, nothing differs."""
    lines = run(
        lab,
        nic,
        """
        call ADD; echo $status; jq -c . /tmp/answer
        ip -j link show eth0 | jq -c '.[0].vfinfo_list[0]'
        ip -n pod -j addr | jq -c 'map({ifname, address, flags, addr_info: [.addr_info[].local]})'
        jq -c .phase /var/lib/mooring/vfs/*.json
        call DEL; echo $status; same first
        CNI_NETNS= call DEL; echo $status; same second
        """,
    )
    status, answer, settings, links, *rest = lines
    assert status == "0"
    assert [interface["name"] for interface in json.loads(answer)["interfaces"]] == ["net1", "rdma7"]
    found = json.loads(settings)
    assert found["address"] == "02:00:00:00:00:99"
    assert (found["vlan_list"][0]["vlan"], found["vlan_list"][0]["qos"]) == (7, 3)
    assert (found["rate"]["min_tx"], found["rate"]["max_tx"]) == (100, 2000)
    assert (found["spoofchk"], found["trust"], found["link_state"]) == (nic.wishes["spoofchk"], True, "enable")
    in_pod = {link["ifname"]: link for link in json.loads(links)}
    assert in_pod["net1"]["address"] == "02:00:00:00:00:99"
    assert "10.9.0.2" in in_pod["net1"]["addr_info"]
    assert "UP" in in_pod["rdma7"]["flags"]
    assert rest == ['"held"', '"held"', "0", "same first", "0", "same second"]


def test_the_nodes_offer_forces_its_vlan_and_refuses_what_it_does_not_allow(lab: Lab) -> None:
    """The first record asks for a MAC and trust; the second VF alone asks for nothing, and gets the network's VLAN."""
    offer = """echo '{"v":1,"pfs":{"0000:3b:00.0":{"network":"default","vlan":100}}}' >/var/lib/mooring/offer.json"""
    record = "/var/lib/mooring/pods/u1.json"
    lines = run(
        lab,
        SIMVF,
        f"""
        {offer}
        call ADD; jq -r '.code, .msg' /tmp/answer; same refused; ls /var/lib/mooring/vfs 2>/dev/null | wc -l
        jq -c 'del(.assignment.vfs[0])' {record} >/tmp/record; cat /tmp/record >{record}
        call ADD; echo $status; ip -j link show eth0 | jq '.[0].vfinfo_list[1].vlan_list[0].vlan'
        call DEL; echo $status; same end
        """,
    )
    reason = "vf 0 of pf 'eth0': vlan 7 is not allowed on the network, where every VF has vlan 100"
    assert lines[:2] == ["11", f"the assignment exceeds this node's offer: {reason}"]
    assert lines[2:] == ["same refused", "0", "0", "100", "0", "same end"]


@pytest.mark.parametrize("nic", ETHERNET)
def test_a_vf_comes_back_when_its_namespace_died_first(lab: Lab, nic: Nic) -> None:
    """The kernel returns the netdev under its pod name; DEL puts name, MAC and settings right."""
    lines = run(lab, nic, "call ADD; echo $status; ip netns delete pod; CNI_NETNS= call DEL; echo $status; same all")
    assert lines == ["0", "0", "same all"]


# What refuses a setting: on the plain NIC a bit of simvf.refuse; of the firmware of mlx5 the PF's commands for VLAN,
# rates and link state (MODIFY_ESW_VPORT_CONTEXT and others of mlx5_ifc.h). It has none for trust and refuses no MAC
# that init has not set; the spoof check has a test of its own.
_COMMANDS = {"vlan": 0x753, "rates": 0x785, "link-state": 0x751}
REFUSALS = (
    *(pytest.param(SIMVF, f"echo {bits} >/sys/module/simvf/parameters/refuse", id=f"simvf-{bits}")
      for bits in (1, 2, 4, 8, 16, 32, 64)),
    *(pytest.param(MLX5, f"echo refused 1 {opcode} -1 >$chip/fault", id=f"mlx5-{name}", marks=pytest.mark.other_nic)
      for name, opcode in _COMMANDS.items()),
)  # fmt: skip


@pytest.mark.parametrize(("nic", "refuse"), REFUSALS)
def test_a_nic_that_refuses_a_setting_is_named_and_everything_undone(lab: Lab, nic: Nic, refuse: str) -> None:
    """Each setting in turn gives error 101 with PF, VF and the kernel's reason, and the kernel's state is as before."""
    lines = run(lab, nic, f"{refuse}; call ADD; echo $status; jq -c . /tmp/answer; same all")
    error = json.loads(lines[1])
    assert (lines[0], error["code"], lines[2]) == ("1", 101, "same all")
    assert "'eth0' refuses" in error["msg"]
    assert "vf 0" in error["msg"]


@pytest.mark.other_nic
def test_an_mlx5_that_refuses_every_spoof_check_keeps_the_vfs_until_it_takes_one(lab: Lab) -> None:
    """Its refusal may have removed the check's rules, so no other pod gets the VF before they are written again.

    esw_acl_ingress_lgcy_setup (mlx5/core/esw/acl/ingress_lgcy.c, Linux 6.12) removes them before it makes new ones.
    """
    lines = run(
        lab,
        replace(MLX5, wishes={"spoofchk": False}),
        """
        echo refused 0 0x936 -1 >$chip/fault; call ADD; echo $status; jq -r '.code, .msg' /tmp/answer
        jq -c '[.vf, .phase]' /var/lib/mooring/vfs/*.json; ls /var/lib/mooring/in-doubt
        state | grep json
        call DEL; echo $status; jq -r '.code, .msg' /tmp/answer; ls /var/lib/mooring/vfs
        echo none >$chip/fault; call DEL; echo $status; same all
        """,
    )
    entries = ["0000:3b:01.0.json", "0000:3b:01.1.json"]
    assert lines[:2] == ["1", "101"]
    assert lines[2].startswith("pf 'eth0' refuses spoofchk ")
    notes = ["0000:3b:01.0", "0000:3b:01.1"]
    assert lines[3:9] == ['[0,"returning"]', '[1,"returning"]', *notes, *entries]
    assert lines[9:11] == ["1", "101"]
    assert lines[12:] == [*entries, "0", "same all"]


# What refuses VLANs, what no longer does, and the kernel's reason.
NO_VLANS = {
    "simvf": ("echo 2 >$nic/refuse", "echo 0 >$nic/refuse", "EOPNOTSUPP (Operation not supported)"),
    "mlx5": ("echo refused 0 0x753 -1 >$chip/fault", "echo none >$chip/fault", "EINVAL (Invalid argument)"),
}


@pytest.mark.parametrize("nic", ETHERNET)
def test_a_nic_that_refuses_to_restore_is_named_and_the_rest_is_restored(lab: Lab, nic: Nic) -> None:
    """Error 101 with PF, VF, setting and errno; once the NIC takes it, a later DEL ends the work."""
    refuse, accept, reason = NO_VLANS[nic.name]
    lines = run(
        lab,
        nic,
        f"""
        nic=/sys/module/simvf/parameters
        call ADD; echo $status
        {refuse}; call DEL; echo $status; jq -r .code,.details /tmp/answer
        ip -j link show eth0 | jq -c '.[0].vfinfo_list[0]|[.vlan_list[0].vlan, .rate.max_tx, .trust, .link_state]'
        {accept}; call DEL; echo $status; same all
        """,
    )
    refusal = f"pf 'eth0' refuses vlan 0, qos 0 for vf 0: {reason}"
    # mlx5's driver may have removed rules before a refusal: all that confines the VF is written again, and refused too.
    assert lines[3].startswith(refusal)
    assert [*lines[:3], *lines[4:]] == ["0", "1", "101", '[7,0,false,"auto"]', "0", "same all"]
