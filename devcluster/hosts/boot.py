"""Start and stop simulated hosts, and reboot them.

A reboot leaves what a disk keeps (state, the CNI chain, host-local's data) and loses the rest: namespaces and links,
the PFs' settings, /run. The boot id stays this machine's.
"""

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from devcluster.hosts import sysfs
from devcluster.hosts.chain import install_chain
from devcluster.hosts.devices import make_nodes
from devcluster.hosts.gpus import make_gpus
from devcluster.hosts.layout import Layout
from devcluster.hosts.links import fabric_path, make_fabric, make_links, remove_links, remove_netns
from devcluster.hosts.nic import Host, dump_host
from devcluster.hosts.sync import Sync
from devcluster.hosts.vftable import VfTable
from mooring.files import write_file


@dataclass(slots=True)
class SimulatedHosts:
    """Simulated hosts below ``root``, connected by their networks, some of them without Mooring.

    ``syncs`` are those of the running hosts.
    """

    root: Path
    hosts: Sequence[Host]
    without_mooring: bool = False
    syncs: dict[str, Sync] = field(default_factory=dict)
    _held: dict[Path, IO[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start every host; raise LinkError, leaving nothing behind."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._take_fabric_away)
            self._held[self._fabric] = make_fabric(self._fabric, self.hosts)
            for host in self.hosts:
                install(host, self.layout(host), without_mooring=self.without_mooring)
                undo.callback(self._halt, host)
                self._boot(host)
            undo.pop_all()

    def stop(self) -> None:
        """Remove every host's links; its disk stays."""
        for host in self.hosts:
            self._halt(host)
        self._take_fabric_away()

    def reboot(self, name: str) -> None:
        """Reboot one host; raise KeyError for an unknown name."""
        host = {host.name: host for host in self.hosts}[name]
        self._halt(host)
        self._boot(host)

    def layout(self, host: Host) -> Layout:
        return Layout.at(self.root, host.name)

    @property
    def _fabric(self) -> Path:
        return fabric_path(self.root, self.hosts)

    def _boot(self, host: Host) -> None:
        layout = self.layout(host)
        self._held[layout.netns] = make_links(host, layout, self._fabric)
        start_fresh(host, layout)
        self.syncs[host.name] = Sync(host, layout)
        write_file(layout.description, dump_host(host))

    def _halt(self, host: Host) -> None:
        layout = self.layout(host)
        if (sync := self.syncs.pop(host.name, None)) is not None:
            sync.close()
        # A namespace that another cluster holds under this name is not removed.
        if (held := self._held.pop(layout.netns, None)) is not None:
            layout.description.unlink(missing_ok=True)
            remove_links(host, layout)
            held.close()

    def _take_fabric_away(self) -> None:
        if (held := self._held.pop(self._fabric, None)) is not None:
            remove_netns(self._fabric)
            held.close()


def install(host: Host, layout: Layout, *, without_mooring: bool = False) -> None:
    """Write the host's disk; one without Mooring has no CNI chain yet."""
    layout.make()
    if not without_mooring:
        install_chain(layout, host)


def start_fresh(host: Host, layout: Layout) -> None:
    """Do what a boot does beside the links: /sys, /dev, an empty /run, PFs whose VFs have a MAC set and no more."""
    for folder in (layout.sys, layout.run):
        shutil.rmtree(folder, ignore_errors=True)
    layout.make()
    sysfs.build(layout.sys, host, admin_macs=True)
    make_nodes(layout.dev, host)
    make_gpus(layout, host)
    VfTable(layout.vftable).reset(host, admin_macs=True)
