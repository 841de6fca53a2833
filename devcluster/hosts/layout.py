"""Where things lie on a simulated host: one folder a host, so that every program reaches its own by flags.

<root>/<node>/sys, dev, proc   what /sys, /dev and NVIDIA's driver in /proc hold on a real host (--sysfs, --dev, --proc)
<root>/<node>/state, run       --state and --run of the node programs
<root>/<node>/cni/bin, conf    CNI executables and the conflist; cni/ipam is host-local's own data
<root>/<node>/containerd       the runtime's folders and socket, and CDI specifications in cdi
<root>/<node>/nic              vftable.json: the PFs' settings of their VFs
<root>/<node>/root             the host's root folder, where it has one of its own (`devcluster.without_mooring`)
<root>/<node>/host.json        the host's description, written last: it is there when the host is ready
/run/netns/mooring-<node>      the host's network namespace; <root>/netns/... where /run/netns cannot be written
"""

import os
from dataclasses import dataclass
from pathlib import Path

NAMED = Path("/run/netns")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one simulated host."""

    home: Path
    netns: Path
    sys: Path
    dev: Path
    proc: Path
    state: Path
    run: Path
    cni_bin: Path
    cni_conf: Path
    ipam: Path
    containerd: Path
    cdi: Path
    vftable: Path
    root: Path
    description: Path

    @classmethod
    def at(cls, root: Path, node: str) -> "Layout":
        home = root.absolute() / node
        return cls(
            home=home,
            netns=netns_path(root, f"mooring-{node}"),
            sys=home / "sys",
            dev=home / "dev",
            proc=home / "proc",
            state=home / "state",
            run=home / "run",
            cni_bin=home / "cni" / "bin",
            cni_conf=home / "cni" / "conf",
            ipam=home / "cni" / "ipam",
            containerd=home / "containerd",
            cdi=home / "containerd" / "cdi",
            vftable=home / "nic" / "vftable.json",
            root=home / "root",
            description=home / "host.json",
        )

    def make(self) -> None:
        """Make the folders; what lies in them stays."""
        folders = (
            self.sys,
            self.dev,
            self.state,
            self.run,
            self.cni_bin,
            self.cni_conf,
            self.ipam,
            self.vftable.parent,
        )
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        self.run.chmod(0o700)


def netns_path(root: Path, name: str) -> Path:
    """Return where a namespace is pinned: named as by ``ip netns``, or below ``root`` without permission for that."""
    nearest = NAMED if NAMED.exists() else NAMED.parent
    return (NAMED if os.access(nearest, os.W_OK) else root.absolute() / "netns") / name
