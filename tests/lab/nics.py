"""The lab's NICs on which one and the same test runs.

A test takes a NIC as a parameter (`ETHERNET`, `EACH`), and gets the lab with the kernel arguments of that NIC from
`with_nic`. This defines for the script the variable ``pf`` (the netdev of function 0) and the function
``as_init_leaves_them VF…``: what `mooring-advertiser init` would have done with VFs that are there already.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
# Written so that a VF's driver is bound once more: it reads its MAC, or its GUID, only then.
REBIND = """
  echo 0000:3b:01.$vf >/sys/bus/pci/devices/0000:3b:01.$vf/driver/unbind
  echo 0000:3b:01.$vf >/sys/bus/pci/drivers_probe
"""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of the lab: the kernel's argument, its first PF, and what `init` does to each ``$vf``."""

    name: str
    kernel: str | None
    pf: str
    link: str
    init: str
    # What its driver takes of a pod's wishes, none of which `init` has set already.
    wishes: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    def vf(self, index: int, **more: Any) -> dict[str, Any]:
        """Return an assigned VF of the first PF, as a pod record has it."""
        where = {"pf": self.pf, "vf": index, "pci": f"0000:3b:01.{index}", "link": self.link, "network": "default"}
        return where | more


_ETHERNET = {"min_tx_rate": 100, "max_tx_rate": 2000, "vlan": 7, "qos": 3, "trust": True, "link_state": "enable"}
_MAC = {"mac": "02:00:00:00:00:99"}
SIMVF = Nic("simvf", None, "eth0", "ethernet", ":", _ETHERNET | _MAC | {"spoofchk": True})
# Rates, which enrol the VF; a MAC, of which the driver that is bound then makes the node GUID; spoof check.
MLX5 = Nic(
    "mlx5",
    "mlx5chip.npf=2",
    "eth0",
    "ethernet",
    f"""ip link set $pf vf $vf min_tx_rate 0 max_tx_rate 0
  ip link set $pf vf $vf mac $(cat /sys/bus/pci/devices/0000:3b:01.$vf/net/*/address){REBIND}
  ip link set $pf vf $vf spoofchk on""",
    _ETHERNET | _MAC | {"spoofchk": False},
)
INFINIBAND = Nic(
    "infiniband",
    "mlx5chip.npf=1 mlx5chip.ib=1",
    "ib0",
    "infiniband",
    f"""ip link set $pf vf $vf node_guid 02:00:00:00:00:00:00:0$vf
  ip link set $pf vf $vf port_guid 02:00:00:00:00:00:00:0$vf{REBIND}
  ip link set $pf vf $vf state auto""",
    {"guid": "02:00:00:00:00:00:00:99", "link_state": "enable"},
)
_MLX5 = pytest.param(MLX5, id="mlx5", marks=pytest.mark.other_nic)
_INFINIBAND = pytest.param(INFINIBAND, id="infiniband", marks=pytest.mark.other_nic)
ETHERNET = (pytest.param(SIMVF, id="simvf"), _MLX5)
EACH = (*ETHERNET, _INFINIBAND)
ALL_MLX5 = (_MLX5, _INFINIBAND)


# For the loops that break every call, too long for each NIC: an ordinary run takes mlx5 Ethernet, or what -k picks.
def one_of_each(*more: Nic) -> pytest.MarkDecorator:
    nics = [pytest.param(nic, id=nic.name, marks=pytest.mark.one_nic) for nic in (SIMVF, MLX5, INFINIBAND, *more)]
    return pytest.mark.parametrize("nic", nics)


ONE_OF_EACH = one_of_each()

# For jq, in which a shell reads what must be as before: indexes change when a driver is bound again, the operational
# state follows the carrier up to a second later (linkwatch_do_dev of net/core/link_watch.c), and IPoIB's address starts
# with the number of a queue pair (ipoib_dev_init_default).
LASTING = (
    'map(del(.ifindex, .link_index, .operstate) | .flags -= ["NO-CARRIER"]'
    " | .address |= if length > 17 then .[12:] else . end) | sort_by(.ifname)"
)

# For a shell: whenever no VF is a pod's, the firmware has what it had when `prepared` was called last. It is compared
# after each call of the plugin and at the end, and the script fails. Nothing where the lab's NIC is another. Of what is
# no part of the promise a test may leave out MACs and GUIDs: leave_out=$addresses.
FIRMWARE = f"""
chip=/sys/module/mlx5chip/parameters
firmware() {{ sh {Path(__file__).parent / "inside/firmware.sh"} "${{leave_out:-}}"; }}
addresses='s/\\(mac\\|guid\\) [^ ]*//g'
prepared() {{
  state >/tmp/before; firmware >/tmp/firmware
  [ -s /tmp/firmware ] || [ ! -e /proc/mlx5chip ] || {{ echo "the chip shows nothing"; exit 1; }}
}}
vfs_are_free() {{ [ -z "$(ls /var/lib/mooring/vfs 2>/dev/null)" ]; }}
compare_firmware() {{
  [ -s /tmp/firmware ] && vfs_are_free || return 0
  differs="firmware.sh fails"
  # An ADD in the background may begin meanwhile.
  {{ now=$(firmware) && differs=$(echo "$now" | diff /tmp/firmware -); }} ||
    ! vfs_are_free || echo "after $1: $differs" >>/tmp/other-firmware
}}
at_end() {{
  status=$?; compare_firmware "the script"
  [ ! -e /tmp/other-firmware ] || {{ echo "the firmware is not as before"; head -30 /tmp/other-firmware; status=1; }}
  exit $status
}}
trap at_end EXIT
"""


def with_nic(lab: Lab, nic: Nic) -> Lab:
    """Return the lab with a NIC; ``options`` may have no kernel arguments of their own then."""
    options = ("-a", nic.kernel) if nic.kernel else ()
    before = f"pf={nic.pf}\nas_init_leaves_them() {{\n  for vf in $*; do\n  {nic.init}\n  done\n}}\n"

    def run(script: str, *more: str, **limits: Any) -> "subprocess.CompletedProcess[str]":
        return lab(before + script, *options, *more, **limits)

    return run
