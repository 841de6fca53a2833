"""The advertiser on the lab kernel: real SR-IOV PFs and VFs, real RDMA devices, the program unmodified."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.nics import EACH, INFINIBAND, SIMVF, Lab, Nic

pytestmark = pytest.mark.lab

# Both PFs have the link.
KERNEL = {"simvf": "", "mlx5": "mlx5chip.npf=2", "infiniband": "mlx5chip.npf=2 mlx5chip.ib=3"}
MBPS = {"simvf": 25_000, "mlx5": 25_000, "infiniband": 200_000}
SHOW = f"{sys.executable} -m advertiser show --output json"
PREPARE = """
set -e
for pf in 0 1; do
  ip link set $(ls /sys/bus/pci/devices/0000:3b:00.$pf/net | head -1) up; ip link set wire$pf up 2>/dev/null || true
  echo 4 >/sys/bus/pci/devices/0000:3b:00.$pf/sriov_numvfs
done
for vf in /sys/bus/pci/devices/0000:3b:00.*/virtfn*; do
  netdev=$(ls $vf/net); ip link set $netdev up
  # mlx5 makes the RDMA devices itself.
  [ -e $vf/infiniband ] || rdma link add rdma_$netdev type rxe netdev $netdev
done
"""


def run(lab: Lab, nic: Nic, script: str) -> list[Any]:
    """Return the JSON documents that a script printed, one a line of `jq -c`."""
    done = lab(PREPARE + script, "-a", KERNEL[nic.name])
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]


@pytest.mark.parametrize("nic", EACH)
def test_what_is_published_is_what_the_kernel_says(lab: Lab, nic: Nic) -> None:
    """PFs, rates, VFs, their addresses and RDMA devices agree with ip, lspci, rdma and the kernel's virtfn links."""
    found, links, rdma, functions, *addresses = run(
        lab,
        nic,
        f"""
        {SHOW} | jq -c .
        ip -d -j link show | jq -c .
        rdma -j link show | jq -c .
        lspci -D | grep 'Virtual Function' | cut -d' ' -f1 | jq -R . | jq -sc .
        for pf in 0 1; do
          for vf in 0 1 2 3; do
            basename $(readlink /sys/bus/pci/devices/0000:3b:00.$pf/virtfn$vf)
          done | jq -R . | jq -sc .
        done
        """,
    )
    pfs = found["inventory"]["pfs"]
    by_address = {link["parentdev"]: link for link in links if "parentdev" in link}
    assert [pf["pci"] for pf in pfs] == ["0000:3b:00.0", "0000:3b:00.1"]
    assert [pf["name"] for pf in pfs] == [by_address[pf["pci"]]["ifname"] for pf in pfs]
    assert [(pf["vfs"], pf["mbps"], pf["up"]) for pf in pfs] == [("0-3", MBPS[nic.name], True)] * 2
    assert all("out" not in pf for pf in pfs)
    assert [len(by_address[pf["pci"]]["vfinfo_list"]) for pf in pfs] == [4, 4]
    assert sorted(functions) == sorted(address for linked in addresses for address in linked)
    # Every VF has its RDMA device, and so all eight are on offer, none of them out.
    if nic == INFINIBAND:
        # There no RDMA device names a netdev: IPoIB is a client of its.
        assert len(rdma) == 2 + len(functions)
    else:
        own = set() if nic == SIMVF else {pf["name"] for pf in pfs}
        assert {link["netdev"] for link in rdma} - own == {by_address[address]["ifname"] for address in functions}
    for pf, linked in zip(pfs, addresses, strict=True):
        domain, bus, last = pf["vf0"].split(":")
        first = int(last[:2], 16) * 8 + int(last[3:])
        assert linked == [f"{domain}:{bus}:{first + vf >> 3:02x}.{first + vf & 7}" for vf in range(4)]


@pytest.mark.parametrize("nic", EACH)
def test_trouble_on_the_host_shows_by_its_name(lab: Lab, nic: Nic) -> None:
    """A PF that is down, a VF without a driver, one moved away by another program: each has its own reason."""
    (found,) = run(
        lab,
        nic,
        f"""
        ip link set {nic.pf[:-1]}1 down
        vf0=$(basename $(readlink /sys/bus/pci/devices/0000:3b:00.0/virtfn0))
        echo $vf0 >/sys/bus/pci/devices/$vf0/driver/unbind
        ip netns add other
        ip link set $(ls /sys/bus/pci/devices/0000:3b:00.0/virtfn1/net) netns other
        {SHOW} | jq -c .
        """,
    )
    first, second = found["inventory"]["pfs"]
    # On InfiniBand the port counts, and not IPoIB's netdev, on which no VF depends.
    assert (first["up"], second["up"]) == (True, nic == INFINIBAND)
    reasons = {entry["vfs"]: entry["why"] for entry in first["out"]}
    assert reasons == {"0": "no driver", "1": "no netdev in the host's network namespace"}


# What is set on VF 3, and what /getpfs shows of it: IPoIB has no operation for the rest (ipoib_netdev_ops_pf).
SET = {
    "ethernet": ("min_tx_rate 2000 max_tx_rate 4000 vlan 7 trust on", (2000, 4000, 7, "ON")),
    "infiniband": ("state enable", (0, 0, 0, "OFF")),
}


@pytest.mark.parametrize("nic", EACH)
def test_trouble_is_published_by_the_events_it_causes(lab: Lab, nic: Nic) -> None:
    """Trouble with link, VF, driver or drain is published, and so is its end, though the resync is an hour away."""
    scenario = Path(__file__).parent / "inside/advertiser_scenario.py"
    wishes, shown = SET[nic.link]
    program = f"{sys.executable} {scenario} {nic.pf} {nic.pf[:-1]}1 '{wishes}'"
    (results,) = run(lab, nic, f"cd {scenario.parents[2]} && {program} 2>/tmp/log || {{ cat /tmp/log; exit 1; }}")
    getpfs, readyz, status = results.pop("getpfs"), results.pop("readyz"), results.pop("status")
    assert list(results) == [
        "start",
        *(("link down", "link up") if nic.link == "ethernet" else ()),
        "vf moved away",
        "vf came back",
        "driver unbound",
        "pf drained",
        "annotation removed",
        "pf renamed",
        "pf gone",
    ]
    first, second = results["pf drained"]["pfs"]
    assert {entry["vfs"]: entry["why"] for entry in first["out"]} == {"2": "no driver"}
    assert (first["up"], second["up"]) == (True, True)
    vf = getpfs[0]["vfs"][3]
    assert (vf["min_tx_rate"], vf["max_tx_rate"], vf["vlan"], vf["trust"]) == shown
    assert vf["allocated"] is False
    assert (getpfs[0]["used_tx_rate"], getpfs[0]["capacity_tx_rate"]) == (shown[0], MBPS[nic.name])
    assert (readyz, status) == (200, 0)
