"""The links of simulated hosts, real ones of this machine's kernel: each host's in a network namespace of its own.

A bridge named like the PF stands for the PF and its embedded switch. A veth named like the VF's netdev stands for the
VF. Its other end, ``<pf>_<n>``, is a port of that bridge and stays where it is while the netdev moves. The bridge's
uplink ``<pf>_up`` leads into a namespace apart, where a bridge a network joins the hosts' PFs. IPv6 is off in the
host's namespace, or each of some hundred ports would look for routers; a pod's namespace has its own settings.
"""

import contextlib
import fcntl
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from devcluster.hosts.layout import NAMED, Layout, netns_path
from devcluster.hosts.netdevs import Netdev
from devcluster.hosts.nic import Function, Host

_QUIET = "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; exec ip -batch -"
_FORGIVING = "exec ip -force -batch -"


class LinkError(RuntimeError):
    """Links that could not be made: where, and ip's message."""


def fabric_path(root: Path, hosts: Sequence[Host]) -> Path:
    """Return where the namespace is pinned that joins these hosts."""
    return netns_path(root, f"mooring-{hosts[0].name}-fabric")


def make_fabric(netns: Path, hosts: Iterable[Host]) -> IO[bytes]:
    """Make the namespace that joins the hosts, with a bridge for each network; return the lock on it."""
    networks = sorted({pf.network for host in hosts for pf in host.pfs})
    with contextlib.ExitStack() as undo:
        held = _enter_made(undo, netns)
        run_ip(netns, [f"link add {network} up type bridge stp_state 0 mcast_snooping 0" for network in networks])
        undo.pop_all()
    return held


def make_links(host: Host, layout: Layout, fabric: Path) -> IO[bytes]:
    """Make a host's namespace with all its links; return the lock on it.

    Raise LinkError if the namespace is another cluster's, or a link cannot be made; then nothing is left.
    """
    lines = ["link set lo up"]
    for function in host.functions():
        if function.vf is None:
            lines += _pf_lines(host, function, fabric)
        else:
            lines.append(vf_line(function, Netdev(function.netdev, 0, function.mac)))
    uplinks = (f"link set {_far_end(host, index)} master {pf.network} up" for index, pf in enumerate(host.pfs))
    with contextlib.ExitStack() as undo:
        held = _enter_made(undo, layout.netns)
        run_ip(layout.netns, lines)
        run_ip(fabric, uplinks)
        undo.pop_all()
    return held


def vf_line(function: Function, netdev: Netdev) -> str:
    """Return the command that makes a VF's veth: its netdev closed, the other end a port of its PF."""
    return (
        f"link add {function.port} master {function.pf.name} mtu {netdev.mtu} up type veth"
        f" peer name {netdev.name} address {netdev.mac} mtu {netdev.mtu}"
    )


def run_ip(netns: Path, lines: Iterable[str]) -> None:
    """Run commands of ip in a namespace, all in one process; raise LinkError at the first that fails."""
    done = _run_batch(netns, _QUIET, lines)
    if done.returncode != 0:
        raise LinkError(f"namespace {str(netns)!r}: {done.stderr.strip()}")


def remove_links(host: Host, layout: Layout) -> None:
    """Remove a host's links and namespace, VFs in pods included; do nothing without them.

    Link by link, because a process that is still in the namespace would keep it, and the hosts' uplinks, alive.
    """
    if layout.netns.exists():
        functions = list(host.functions())
        ports = [each.port if each.vf is not None else f"{each.pf.name}_up" for each in functions]
        _run_batch(layout.netns, _FORGIVING, [f"link del {name}" for name in (*ports, *(pf.name for pf in host.pfs))])
        remove_netns(layout.netns)


def _run_batch(netns: Path, shell: str, lines: Iterable[str]) -> "subprocess.CompletedProcess[str]":
    command = ["nsenter", f"--net={netns}", "sh", "-c", shell]
    batch = "".join(f"{line}\n" for line in lines)
    return subprocess.run(command, input=batch, capture_output=True, text=True, check=False)


def make_netns(path: Path) -> IO[bytes]:
    """Make a namespace pinned at ``path``, as ``ip netns`` does for a named one; return the lock on it.

    An existing one is replaced if it is not locked, else it is another cluster's: raise LinkError.
    """
    if path.exists():
        _hold(path).close()
        remove_netns(path)
    if path.parent == NAMED:
        command = ["ip", "netns", "add", path.name]
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        command = ["unshare", f"--net={path}", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LinkError(f"namespace {str(path)!r}: {done.stderr.strip()}")
    return _hold(path)


def _hold(path: Path) -> IO[bytes]:
    """Lock a namespace as in use; the end of this process releases it."""
    namespace = path.open("rb")
    try:
        fcntl.flock(namespace, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        namespace.close()
        raise LinkError(f"namespace {str(path)!r} belongs to another cluster on this machine: end that first") from None
    return namespace


def _enter_made(undo: contextlib.ExitStack, path: Path) -> IO[bytes]:
    held = undo.enter_context(make_netns(path))
    undo.callback(remove_netns, path)
    return held


def remove_netns(path: Path) -> None:
    """Unpin a namespace; its links go when the last process has left it. Do nothing without one."""
    if path.exists():
        subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
        path.unlink()


def _pf_lines(host: Host, function: Function, fabric: Path) -> Iterator[str]:
    pf = function.pf
    yield f"link add {pf.name} address {function.mac} up type bridge stp_state 0 mcast_snooping 0"
    far = _far_end(host, host.pfs.index(pf))
    yield f"link add {pf.name}_up master {pf.name} up type veth peer name {far} netns {fabric}"


def _far_end(host: Host, pf: int) -> str:
    return f"h{host.number}p{pf}"
