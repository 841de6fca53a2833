"""The CNI chain of a simulated host: executables and conflist, such as an operator installs them.

Pods get eth0 by ptp, then their VFs by mooring-cni, addresses for both by host-local. Every host has its own subnet
for eth0; the VFs' addresses are parts of one subnet, because the networks join the hosts.
"""

import json
import sys
from pathlib import Path

from cni.forwarder import render
from devcluster.hosts.layout import Layout
from devcluster.hosts.nic import Host

_PLUGINS = Path("/usr/lib/cni")
_LINKED = ("loopback", "bridge", "ptp", "host-local", "static")
CONFLIST = "10-mooring.conflist"


def composed_cni(layout: Layout) -> list[str]:
    """Return the command that is mooring-cni on this host: the real one, with the VF table for its VF settings."""
    return [sys.executable, "-m", "devcluster.hosts.cni", "--vf-table", str(layout.vftable)]


def install_chain(layout: Layout, host: Host) -> None:
    """Write <cni>/bin and <cni>/conf; plugins that the machine lacks are left out."""
    for name in _LINKED:
        link = layout.cni_bin / name
        link.unlink(missing_ok=True)
        if (_PLUGINS / name).exists():
            link.symlink_to(_PLUGINS / name)
    forwarder = layout.cni_bin / "mooring-cni"
    forwarder.write_text(render(str(layout.run / "cni.sock"), composed_cni(layout)))
    forwarder.chmod(0o755)
    (layout.cni_conf / CONFLIST).write_text(json.dumps(conflist(layout, host), indent=1))


def conflist(layout: Layout, host: Host) -> dict[str, object]:
    """Return the host's network configuration list (CNI 1.0.0)."""
    if not 0 <= host.number <= 255:
        raise ValueError(f"host {host.name!r}: number {host.number!r} has no subnet, 0 to 255 have")
    number = host.number
    eth0 = {"subnet": f"10.244.{number}.0/24"}
    vfs = {"subnet": "10.56.0.0/16", "rangeStart": f"10.56.{number}.10", "rangeEnd": f"10.56.{number}.250"}
    return {
        "cniVersion": "1.0.0",
        "name": "mooring",
        "plugins": [
            {"type": "ptp", "ipam": _host_local(layout, eth0)},
            {
                "type": "mooring-cni",
                "capabilities": {"io.kubernetes.cri.pod-annotations": True},
                "ipam": _host_local(layout, vfs),
                "node": host.name,
                "state": str(layout.state),
                "run": str(layout.run),
                "sysfs": str(layout.sys),
            },
        ],
    }


def _host_local(layout: Layout, addresses: dict[str, str]) -> dict[str, object]:
    folder = layout.ipam / addresses["subnet"].replace("/", "-")
    return {"type": "host-local", "ranges": [[addresses]], "dataDir": str(folder)}
