"""`mooring-advertiser init` on the lab kernel: the kernel's own SR-IOV core makes the VFs, 120 on each of four PFs."""

import json
import sys
from typing import Any

import pytest

from tests.lab.nics import EACH, INFINIBAND, MLX5, SIMVF, Lab, Nic

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

FOUR_PFS = ("-t", "570", "-m", "2G")
# How many VFs each PF has first and then, and the kernel's arguments: mlx5's driver needs 10 MB and more for each VF.
COUNTS = {"simvf": (48, 120), "mlx5": (4, 12), "infiniband": (4, 12)}
FOUR_PFS_KERNEL = {
    "simvf": "simpci.npf=4 simpci.totalvfs=128 simvf.speed=100000",
    "mlx5": "mlx5chip.npf=4",
    "infiniband": "mlx5chip.npf=4 mlx5chip.ib=15",
}
# Every PF that there is has the link.
KERNEL = {"simvf": "", "mlx5": "mlx5chip.npf=2", "infiniband": "mlx5chip.npf=2 mlx5chip.ib=3"}
PROGRAM = f"{sys.executable} -m advertiser"
FLAGS = "--offer /tmp/offer.yaml --node-name lab"
PREPARE = """
for pf in 0 1 2 3; do ip link set eth$pf up 2>/dev/null && ip link set wire$pf up; done
offer() { cat >/tmp/offer.yaml <<E
v: 1
pfs:
- match: {driver: $(basename $(readlink /sys/bus/pci/devices/0000:3b:00.0/driver))}
  init: {vfs: $1, trust: false, spoofchk: true, link_state: auto}
E
}
vfs() { cat /sys/bus/pci/devices/0000:3b:00.$1/sriov_numvfs; }
# A PF is on offer once one of its VFs has an RDMA device.
first_rdma() {
  for vf in /sys/bus/pci/devices/0000:3b:00.*/virtfn0; do
    # mlx5 makes the RDMA devices itself.
    [ ! -e $vf/infiniband ] || continue
    netdev=$(ls $vf/net); ip link set $netdev up; rdma link add rdma_$netdev type rxe netdev $netdev
  done
}
"""
MLX5_OFFER = json.dumps(
    {
        "v": 1,
        "pfs": [{"match": {"pci": "0000:3b:00.0"}, "default_share_mbps": 500, "init": {"vfs": 3, "mtu": 9000}}],
    }
)
INIT = f"{PROGRAM} init {FLAGS} 2>>/tmp/log"
SHOW = f"{PROGRAM} show {FLAGS} --output json | jq -c ."


def run(lab: Lab, nic: Nic, script: str, *options: str, kernel: dict[str, str] = KERNEL) -> list[Any]:
    """Return what a script printed: JSON documents, one a line."""
    done = lab(PREPARE + script, *options, "-a", kernel[nic.name], timeout_s=580)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


def out(pf: Any) -> dict[str, str]:
    """Return why VFs of a PF may not be used: any other reason would come before a missing RDMA device."""
    return {entry["vfs"]: entry["why"] for entry in pf.get("out", [])}


def without_rdma(nic: Nic, vfs: str) -> dict[str, str]:
    """Return why those VFs are out that have no RDMA device: mlx5 makes one for each."""
    return {vfs: "no RDMA device"} if nic == SIMVF else {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nic", EACH)
@pytest.mark.slow
def test_init_makes_some_and_then_more_vfs_on_each_of_four_pfs(lab: Lab, nic: Nic) -> None:
    """Past 256 functions the VFs lie on the next bus; lspci and ip agree with ours; a second run changes nothing."""
    some, more = COUNTS[nic.name]
    first, second, links, addresses, autoprobe, ready = run(
        lab,
        nic,
        f"""
        offer {some}; {INIT} || cat /tmp/log; first_rdma; {SHOW}
        offer {more}; {INIT} || cat /tmp/log; first_rdma; {SHOW}
        ip -d -j link show | jq -c .
        lspci -D | grep -c 'Virtual Function' | jq -c '{{lspci: .}}'
        before=$(ip -j link | md5sum); {INIT}; [ "$before" = "$(ip -j link | md5sum)" ] || exit 7
        cat /sys/bus/pci/devices/0000:3b:00.?/sriov_drivers_autoprobe | jq -sc .
        [ -f /run/mooring/init/ready ] && ls /run/mooring/init/preparing | jq -Rsc '{{preparing: .}}'
        """,
        *FOUR_PFS,
        kernel=FOUR_PFS_KERNEL,
    )
    assert [pf["vfs"] for pf in first["inventory"]["pfs"]] == [f"0-{some - 1}"] * 4
    pfs = second["inventory"]["pfs"]
    assert [(pf["vfs"], out(pf)) for pf in pfs] == [(f"0-{more - 1}", without_rdma(nic, f"1-{more - 1}"))] * 4
    assert (pfs[-1]["vf0"] > "0000:3c") == (nic == SIMVF)
    assert (addresses, autoprobe, ready) == ({"lspci": 4 * more}, [1] * 4, {"preparing": ""})
    by_name = {link["ifname"]: link for link in links}
    told = [vf for pf in pfs for vf in by_name[pf["name"]]["vfinfo_list"]]
    if nic == INFINIBAND:
        # IPoIB has operations for link state and GUIDs alone (ipoib_netdev_ops_pf).
        assert len({vf["node guid"] for vf in told}) == len({vf["port guid"] for vf in told}) == 4 * more
        assert {vf["link_state"] for vf in told} == {"auto"}
        return
    assert len({vf["address"] for vf in told}) == 4 * more
    assert {(vf["spoofchk"], vf["trust"], vf["link_state"]) for vf in told} == {(True, False, "auto")}
    netdevs = {
        link["address"] for link in links if link.get("parentdev", "").startswith(("0000:3b", "0000:3c", "0000:3d"))
    }
    assert {vf["address"] for vf in told} <= netdevs


@pytest.mark.parametrize("nic", EACH)
@pytest.mark.slow
def test_an_init_that_was_killed_is_finished_by_the_next(lab: Lab, nic: Nic) -> None:
    """Meanwhile the PF's VFs are out as "preparing", and autoprobe comes back as it was."""
    during, after, autoprobe = run(
        lab,
        nic,
        f"""
        offer 16
        {INIT} & pid=$!
        until [ -e /sys/bus/pci/devices/0000:3b:00.0/virtfn3/driver ]; do :; done
        kill -9 $pid; wait $pid
        first_rdma; {SHOW}
        {INIT} || cat /tmp/log
        first_rdma 2>/dev/null
        {SHOW}
        cat /sys/bus/pci/devices/0000:3b:00.?/sriov_drivers_autoprobe | jq -sc .
        """,
    )
    assert out(during["inventory"]["pfs"][0]) == {"0-15": "preparing"}
    pfs = after["inventory"]["pfs"]
    assert [(pf["vfs"], out(pf)) for pf in pfs] == [("0-15", without_rdma(nic, "1-15"))] * 2
    assert autoprobe == [1, 1]


@pytest.mark.parametrize("nic", EACH)
@pytest.mark.slow
def test_what_the_kernel_refuses_is_told_with_what_to_do(lab: Lab, nic: Nic) -> None:
    """More VFs than the device has (ERANGE from the kernel); another number while one is in a pod (EBUSY)."""
    done = lab(
        PREPARE
        + f"""
        offer 4; {INIT}
        echo 5 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs; echo "EBUSY $?"
        echo 99 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs; echo "ERANGE $?"
        offer 99; {INIT}; echo "too many $?"
        ip netns add pod; ip link set $(ls /sys/bus/pci/devices/0000:3b:00.0/virtfn1/net) netns pod
        offer 5; {INIT}; echo "in use $?"
        echo "vfs $(vfs 0) $(vfs 1)"
        cat /tmp/log
        """,
        "-a",
        KERNEL[nic.name],
    )
    for line in ("EBUSY 1", "ERANGE 1", "too many 1", "in use 1", "vfs 4 5"):
        assert line in done.stdout.splitlines(), done.stdout + done.stderr
    assert f"{nic.pf}: the offer asks for 99 VFs, but sriov_totalvfs is 16: raise the limit" in done.stdout
    assert f"{nic.pf}: has 4 VFs, the offer asks for 5, and 1 are in use: " in done.stdout


def test_the_rdma_stacks_mode_is_set_or_left_for_the_next_boot(lab: Lab) -> None:
    """The kernel refuses another mode once a network namespace exists: init writes the module option and reports it."""
    done = lab(
        f"""
        printf 'v: 1\\npfs: []\\nrdma_netns: exclusive\\n' >/tmp/offer.yaml
        {INIT} --modprobe /tmp/modprobe.d/mooring.conf; echo "first $? $(rdma system | grep -o exclusive)"
        printf 'v: 1\\npfs: []\\nrdma_netns: shared\\n' >/tmp/offer.yaml
        ip netns add pod
        {INIT} --modprobe /tmp/modprobe.d/mooring.conf; echo "second $? $(grep options /tmp/modprobe.d/mooring.conf)"
        cat /tmp/log
        """
    )
    assert "first 0 exclusive" in done.stdout, done.stdout + done.stderr
    assert "second 1 options ib_core netns_mode=1" in done.stdout
    assert "reboot this node" in done.stdout


def test_an_mlx5_pf_is_opened_gets_its_mtu_and_all_its_vfs_take_part(lab: Lab) -> None:
    """VFs that were made without `init`, on a closed PF with an address of the host's: a warning names it."""
    link, shares, left, uses, again = run(
        lab,
        MLX5,
        f"""
        echo 3 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
        ip address add 10.0.0.1/24 dev eth0; ip link set eth0 down
        echo '{MLX5_OFFER}' >/tmp/offer.yaml
        {INIT} || cat /tmp/log
        ip -j link show eth0 | jq -c '.[0] | [.mtu, (.flags | contains(["UP"]))]'
        tr '\\n' ' ' </sys/module/mlx5chip/parameters/shares | jq -Rc '[.]'
        jq -c .pfs /var/lib/mooring/offer.json
        jq -Rc 'fromjson? | select(.event | contains("MTU of a PF")) | .uses' /tmp/log
        : >/tmp/log; {INIT}; jq -Rsc 'split("\\n") | map(fromjson? | select(.level == "warning") | .event)' /tmp/log
        """,
    )
    assert (link, shares) == ([9000, True], ["0 0 1 0 2 0 "])
    assert left == {"0000:3b:00.0": {"default_share_mbps": 500, "network": "default"}}
    assert uses == ["address 10.0.0.1/24"]
    assert "changing the MTU of a PF that the host uses" not in again
