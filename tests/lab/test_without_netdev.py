"""VFs given by their RDMA device alone, on the lab's InfiniBand NIC: requested without a netdev, or without having one.

What is where in both modes of the RDMA stack, the GUID, and everything as before afterwards.
"""

import json
import sys

import pytest

from tests.lab.calls.infiniband_calls import FIRST, FIRST_VF, SECOND_VF, Lab, run

# An ordinary run takes some of them: each boots the lab.
pytestmark = [pytest.mark.lab, pytest.mark.other_nic]

GUID = "02:00:00:00:00:00:00:99"
ALONE = FIRST | {"netdev": False}
SECOND = FIRST | {"vf": 1, "pci": SECOND_VF}
CNI, ADVERTISER = (f"{sys.executable} -m {program}" for program in ("cni", "advertiser"))
COMMANDS = f"""
# VF 0's netdev on the host: its name, and whether it is up.
netdev() {{
  ip -d -j link show | jq -c 'map(select(.parentdev == "{FIRST_VF}"))[] | [.ifname, (.flags | contains(["UP"]))]'
}}
links() {{ inside ip -j link show | jq -c 'map(.ifname) | sort'; }}
result() {{ jq -c '[[.interfaces[].name], (.ips | length)]' /tmp/answer; }}
check() {{
  cp /tmp/conf.json /tmp/kept.json
  jq '. + {{prevResult: $result[0]}}' --slurpfile result /tmp/answer /tmp/kept.json >/tmp/conf.json
  call CHECK; cp /tmp/kept.json /tmp/conf.json; echo check $status $(jq -r '.details // ""' /tmp/answer)
}}
entry=/var/lib/mooring/vfs/{FIRST_VF}.json
rebooted() {{ ip netns delete pod; sed -i 's/"boot":"[^"]*"/"boot":"before"/' $entry; }}
rebind() {{ echo {FIRST_VF} >$(vf 0)/driver/unbind; echo {FIRST_VF} >/sys/bus/pci/drivers/mlx5_core/bind; }}
"""
# As where ib_ipoib is on the PF only. VF 0 has the policy that `init` gives.
WITHOUT_IPOIB = f"""
{COMMANDS}
make_vfs 0; echo 2 >$parameters/no_ipoib; make_vfs 2; ip link set ib0 vf 0 state auto; prepared
"""
MODES = pytest.mark.parametrize("mode", ["shared", "exclusive"])


def in_pod(mode: str, *moved: str) -> str:
    """Return which RDMA devices a pod sees, as the script prints them."""
    return f"pod {json.dumps(moved if mode == 'exclusive' else ('mlx5_0', 'mlx5_1', 'mlx5_2'), separators=(',', ':'))}"


@MODES
def test_a_pod_that_requests_no_netdev_gets_the_rdma_device_alone(lab: Lab, mode: str) -> None:
    """The netdev stays on the host, down, and takes no name and no address of the pod's; afterwards all is as before.

    Released by DEL, by a second one, after the namespace died, and by the reconciler.
    """
    script = f"""
        {COMMANDS}
        add; result; devices pod inside; links; netdev; jq -c '[.ifname, .rdma_only, .ipam]' $entry; check
        {CNI} show --node-name n1 | grep -c '^ib0/0  .* held   -  ' || true
        del; same; CNI_NETNS= del; same
        add; ip netns delete pod; del; same
        ip netns add pod; add
        {CNI} serve --node-name n1 --reconcile-s 1 2>/tmp/log & server=$!
        ip netns delete pod; until_true is_same; same; kill $server; wait $server; echo ended $?
        """
    lines = run(lab, script, ALONE, SECOND, mode=mode)
    assert lines == [
        *("add 0", '[["net1"],0]', in_pod(mode, "mlx5_1", "mlx5_2"), '["lo","net1"]', '["mo0-3b08",false]'),
        *('["net2",true,null]', "check 0", "1", "del 0", "same", "del 0", "same"),
        *("add 0", "del 0", "same", "add 0", "same", "ended 0"),
    ]


@MODES
def test_a_vf_without_a_netdev_has_the_pods_guid_and_then_its_own(lab: Lab, mode: str) -> None:
    """The PF's netdev sets it; the VF's driver is bound again for it, and once more afterwards."""
    script = f"""
        {WITHOUT_IPOIB}
        add; devices pod inside; inside rdma -j dev show | jq -r '.[] | select(.ifname == "mlx5_1").node_guid'; told 0
        links; check; del; node_guid 0; same; CNI_NETNS= del; same
        add; ip netns delete pod; del; node_guid 0; same
        """
    lines = run(lab, script, ALONE | {"guid": GUID}, mode=mode)
    own = ("0000:0000:0000:0000", "same")
    assert lines == [
        *("add 0", in_pod(mode, "mlx5_1"), "0200:0000:0000:0099", f'["auto","{GUID}"]', '["lo"]', "check 0"),
        *("del 0", *own, "del 0", "same", "add 0", "del 0", *own),
    ]


def test_a_vf_without_a_netdev_is_freed_of_processes_and_after_a_reboot(lab: Lab) -> None:
    """In shared mode a process of the pod that keeps the device loses it; another boot's entry is closed."""
    script = f"""
        {WITHOUT_IPOIB}
        add; {sys.executable} $verbs {FIRST_VF} qp >/tmp/ready & process=$!; until_true grep -q ready /tmp/ready
        del; grep -cE 'driver is rebound|rebinding its driver' /tmp/log; test -d /proc/$process && echo alive; same
        add; rebooted; del; same
        """
    assert run(lab, script, ALONE) == ["add 0", "del 0", "1", "alive", "same", "add 0", "del 0", "same"]


def test_in_exclusive_mode_a_device_is_lost_or_forgotten_and_found(lab: Lab) -> None:
    """The advertiser says that the host has it though a pod holds it; DEL finds one that the ledger has lost."""
    script = f"""
        {WITHOUT_IPOIB}
        show() {{ {ADVERTISER} show --offer /tmp/offer.yaml --node-name lab --output json | jq -c "$1"; }}
        printf 'v: 1\\npfs: [{{match: {{link: infiniband}}}}]\\n' >/tmp/offer.yaml
        add; show '.inventory.pfs[0] | [.vf_netdevs, .out]'; rebind; show '.inventory.pfs[0].out'; del; same
        add; rm $entry; devices pod inside; del; devices pod inside; devices host; same
        """
    lost = '[{"vfs":"0","why":"lost: on the host although pod pod holds it"}]'
    home = ("pod []", 'host ["mlx5_0","mlx5_1","mlx5_2"]', "same")
    lines = run(lab, script, ALONE, mode="exclusive")
    assert lines == ["add 0", "[false,null]", lost, "del 0", "same", "add 0", 'pod ["mlx5_1"]', "del 0", *home]


def test_what_a_pod_requests_and_its_vf_lacks_is_refused(lab: Lab) -> None:
    """A VF without a netdev, for a pod that requests one; nothing is left."""
    lines = run(lab, f"{WITHOUT_IPOIB} add; same", FIRST | {"netdev": True})
    assert lines == ["add 1 vf 0 of pf 'ib0' has no netdev, but the pod requests one", "same"]
