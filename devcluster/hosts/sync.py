"""Keep a simulated host's sysfs in step with its links, and return VFs as the kernel does.

A VF's netdev is shown only while it is in the host's namespace. When a namespace dies, the kernel returns a physical
netdev to the first namespace, closed, under its old name, or ``dev<ifindex>`` if that is taken. Source:
default_device_exit_net in net/core/dev.c. It destroys a veth, with its other end. So a port that is gone means that its
VF's namespace died. The VF is made again as it was last seen there, with a new ifindex.

A VF's veth is identified by its port, which never moves. Nothing here opens a pod's namespace: its events come by
number, and what was missed is requested by number (`devcluster.hosts.rtnl`).
"""

from collections.abc import Iterable

import structlog

from devcluster.hosts.layout import Layout
from devcluster.hosts.links import run_ip, vf_line
from devcluster.hosts.netdevs import Netdev, show
from devcluster.hosts.nic import Function, Host
from devcluster.hosts.rtnl import Change, Link, Overflow, Watch
from devcluster.hosts.sysfs import Tree

_log = structlog.get_logger()


class Sync:
    """One host's tree and links; the caller's thread waits on `fileno` and calls `catch_up`."""

    def __init__(self, host: Host, layout: Layout) -> None:
        """Open the host's namespace and update the tree; raise OSError without one."""
        self._host = host
        self._layout = layout
        self._tree = Tree(layout.sys)
        self._names = {each.port: each for each in host.functions() if each.vf is not None}
        self._last = {each.pci: Netdev(each.netdev, 0, each.mac) for each in host.functions()}
        self._watch = Watch(layout.netns)
        self._look_afresh()

    def fileno(self) -> int:
        return self._watch.fileno()

    def close(self) -> None:
        self._watch.close()

    def catch_up(self) -> None:
        """Apply what happened since the last call."""
        try:
            lost = [vf for change in self._watch.changes() if (vf := self._apply(change)) is not None]
        except Overflow:
            _log.warning("events of links were lost, looking at all of them", node=self._host.name)
            self._look_afresh()
        else:
            self._give_back(lost)

    def _look_afresh(self) -> None:
        links = {link.name: link for link in self._watch.links()}
        self._pfs: dict[int, Function] = {}
        self._ports: dict[int, Function] = {}
        self._home: dict[int, Function] = {}
        self._away: dict[tuple[int, int], Function] = {}
        lost = []
        for function in self._host.functions():
            if function.vf is None and function.pf.name in links:
                self._pfs[links[function.pf.name].index] = function
                self._see(function, links[function.pf.name])
            elif function.port in links:
                self._ports[links[function.port].index] = function
                self._locate(function, links[function.port])
            elif function.vf is not None:
                lost.append(function)
        self._give_back(lost)

    def _apply(self, change: Change) -> Function | None:
        """Take one event in; return the VF whose veth is gone."""
        link = change.link
        if change.nsid is not None:
            self._apply_away((change.nsid, link.index), change)
        elif change.gone:
            return self._apply_gone(link)
        elif link.index in self._pfs:
            self._see(self._pfs[link.index], link)
        elif link.peer_nsid is None and link.peer in self._ports:
            self._home[link.index] = self._ports[link.peer]
            self._see(self._ports[link.peer], link)
        elif (function := self._names.get(link.name)) is not None and self._home.get(link.peer or 0) != function:
            self._ports[link.index] = function
            self._locate(function, link)
        return None

    def _apply_away(self, place: tuple[int, int], change: Change) -> None:
        function = self._away.get(place)
        if function is None:
            return
        if change.gone:
            del self._away[place]
            self._locate(function, self._port_of(function))
        else:
            self._last[function.pci] = _netdev(change.link)

    def _apply_gone(self, link: Link) -> Function | None:
        if link.index in self._ports:
            function = self._ports.pop(link.index)
            self._show(function, None)
            return function
        if link.index in self._home:
            function = self._home.pop(link.index)
            self._locate(function, self._port_of(function))
        return None

    def _port_of(self, function: Function) -> Link | None:
        """Request a VF's port as it is now."""
        index = next((index for index, each in self._ports.items() if each == function), None)
        return None if index is None else self._watch.link(index)

    def _locate(self, function: Function, port: Link | None) -> None:
        """Find a VF's netdev by its port: here, or by number in some other namespace."""
        link = None if port is None or port.peer is None else self._watch.link(port.peer, port.peer_nsid)
        if port is None or link is None:  # Gone just now: the event of the port's end is still to come.
            self._show(function, None)
        elif port.peer_nsid is None:
            self._home[link.index] = function
            self._see(function, link)
        else:
            self._away[port.peer_nsid, link.index] = function
            self._last[function.pci] = _netdev(link)
            self._show(function, None)

    def _see(self, function: Function, link: Link) -> None:
        self._last[function.pci] = _netdev(link)
        self._show(function, self._last[function.pci])

    def _show(self, function: Function, netdev: Netdev | None) -> None:
        show(self._layout.sys, self._tree.folder(function), function, netdev)

    def _give_back(self, lost: Iterable[Function]) -> None:
        functions = list(lost)
        if not functions:
            return
        links = self._watch.links()
        taken = {name for link in links for name in (link.name, *link.altnames)}
        lines = [line for function in functions for line in self._return_lines(function, taken)]
        run_ip(self._layout.netns, lines)
        _log.info("VFs came back from a namespace that died", node=self._host.name, pci=[vf.pci for vf in functions])

    def _return_lines(self, function: Function, taken: set[str]) -> list[str]:
        seen = self._last[function.pci]
        name = seen.name if seen.name not in taken else _free_name(seen.ifindex, taken)
        altnames = [altname for altname in seen.altnames if altname not in taken]
        taken.update((name, *altnames))
        back = Netdev(name, 0, seen.mac, seen.mtu)
        return [vf_line(function, back), *(f"link property add dev {name} altname {each}" for each in altnames)]


def _netdev(link: Link) -> Netdev:
    return Netdev(link.name, link.index, link.mac, link.mtu, link.up, link.altnames)


def _free_name(ifindex: int, taken: set[str]) -> str:
    """Return the kernel's name for a netdev whose own name is taken: dev<ifindex>, then the first free dev<n>."""
    names = (f"dev{number}" for number in (ifindex, *range(len(taken) + 1)))
    return next(name for name in names if name not in taken)
