"""The part of the sysfs tree that changes: which netdev a PCI function shows, under which name, and its attributes.

A netdev is visible in sysfs only to its own network namespace (the kernel tags it). So a function whose netdev is in a
pod keeps an empty ``net/``. Every change is one rename, so a reader sees a netdev whole or not at all. Source:
Documentation/ABI/testing/sysfs-class-net; net/core/net-sysfs.c. A file cannot answer with an errno: where the kernel's
would (speed and carrier of a closed netdev: EINVAL) there is none.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from devcluster.hosts.nic import Function

# include/uapi/linux/if.h
_UP, _BROADCAST, _MULTICAST = 0x1, 0x2, 0x1000


@dataclass(frozen=True, slots=True)
class Netdev:
    """A netdev as its namespace shows it."""

    name: str
    ifindex: int
    mac: str
    mtu: int = 1500
    up: bool = False
    altnames: tuple[str, ...] = ()


def put(path: Path, text: str) -> None:
    """Write a file of the tree so that no reader finds it empty."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.replace(path)


def link(path: Path, target: Path) -> None:
    """Make a relative symbolic link as sysfs does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def guid(mac: str) -> str:
    """Return the EUI-64 of a MAC, as mlx5 cards carry it."""
    digits = mac.replace(":", "")
    whole = f"{digits[:6]}0300{digits[6:]}"
    return ":".join(whole[start : start + 4] for start in range(0, 16, 4))


def system_image_guid(mac: str) -> str:
    """Return the GUID that all functions of one card share, made from the MAC of one of its PFs."""
    return guid(f"{mac[:-2]}00")


def show(sys: Path, folder: Path, function: Function, netdev: Netdev | None) -> None:
    """Make the function at ``folder`` show this netdev and no other; None where no netdev is visible."""
    net = folder / "net"
    net.mkdir(exist_ok=True)
    for path in net.iterdir():
        if netdev is None or path.name != netdev.name:
            _remove(sys, folder, path)
    _show_port(folder, function, up=netdev is not None and netdev.up)
    if netdev is None:
        return
    shown = net / netdev.name
    if shown.exists():
        _update(shown, _attributes(function, netdev))
    else:
        _add(sys, folder, shown, _attributes(function, netdev))


def _add(sys: Path, folder: Path, shown: Path, attributes: Mapping[str, str]) -> None:
    hidden = folder / f".net-{shown.name}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir()
    for name, text in attributes.items():
        (hidden / name).write_text(f"{text}\n")
    # Relative to where the folder will be: one level deeper than where it is being made.
    (hidden / "device").symlink_to(f"../../../{folder.name}")
    (hidden / "subsystem").symlink_to(os.path.relpath(sys / "class" / "net", shown))
    hidden.rename(shown)
    in_class = sys / "class" / "net" / shown.name
    in_class.unlink(missing_ok=True)
    link(in_class, shown)


def _remove(sys: Path, folder: Path, shown: Path) -> None:
    in_class = sys / "class" / "net" / shown.name
    # Two netdevs may swap their names: only the one that the link points to removes it.
    if in_class.is_symlink() and in_class.resolve() == shown.resolve():
        in_class.unlink()
    hidden = folder / f".gone-{shown.name}"
    shown.rename(hidden)
    shutil.rmtree(hidden)


def _update(shown: Path, attributes: Mapping[str, str]) -> None:
    for name, text in attributes.items():
        path = shown / name
        if not path.exists() or path.read_text() != f"{text}\n":
            put(path, f"{text}\n")
    for name in {"speed", "carrier"} - attributes.keys():
        (shown / name).unlink(missing_ok=True)


def _attributes(function: Function, netdev: Netdev) -> dict[str, str]:
    flags = _BROADCAST | _MULTICAST | (_UP if netdev.up else 0)
    attributes = {
        "address": netdev.mac,
        "addr_assign_type": "0" if function.vf is None else "1",
        "addr_len": "6",
        "broadcast": "ff:ff:ff:ff:ff:ff",
        "dev_id": "0x0",
        "dev_port": "0",
        "flags": f"{flags:#x}",
        "ifindex": str(netdev.ifindex),
        "iflink": str(netdev.ifindex),
        "mtu": str(netdev.mtu),
        "operstate": "up" if netdev.up else "down",
        "tx_queue_len": "1000",
        "type": "1" if function.pf.link == "ethernet" else "32",
        "uevent": f"INTERFACE={netdev.name}\nIFINDEX={netdev.ifindex}",
    }
    if function.vf is None and function.pf.personality.has_devlink_port:
        attributes |= {"phys_port_name": f"p{int(function.pci[-1])}"}
    if function.vf is None and function.pf.personality.has_switch_id:
        attributes |= {"phys_switch_id": _switch_id(function.mac)}
    if netdev.up:
        attributes |= {"carrier": "1", "speed": str(function.pf.mbps), "duplex": "full"}
    return attributes


def _switch_id(mac: str) -> str:
    """Return the switch id of a card's PFs, in legacy mode too: the system image GUID, byte by byte as in memory.

    mlx5e_devlink_port_register since Linux 5.13; an IPoIB netdev has no devlink port, a VF's port has no switch id.
    """
    return bytes.fromhex(system_image_guid(mac).replace(":", ""))[::-1].hex()


def _show_port(folder: Path, function: Function, *, up: bool) -> None:
    """Update the RDMA device's port, which follows its netdev (RoCE) in whichever namespace that is."""
    port = folder / "infiniband" / function.rdma / "ports" / "1"
    if not port.is_dir() or function.pf.link != "ethernet":
        return
    state, physical = ("4: ACTIVE", "5: LinkUp") if up else ("1: DOWN", "3: Disabled")
    # The VF may be reset at this moment (`devcluster.hosts.vf_reset`): its device is gone then.
    with suppress(FileNotFoundError):
        _update_port(port, {"state": state, "phys_state": physical})


def _update_port(port: Path, attributes: Mapping[str, str]) -> None:
    for name, text in attributes.items():
        put(port / name, f"{text}\n")
