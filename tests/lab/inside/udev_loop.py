"""Add and remove VFs while a udevd renames what appears on the host, some milliseconds later; list what goes wrong.

A turn is an ADD and a DEL, and the next one follows at once: it meets the renames that the last one caused. In shared
mode each ADD gives a VF another GUID and each DEL its old one. So each binds the VF's driver again, and udevd gives the
netdev that the kernel makes then its lasting name after a delay of 5 to 200 ms. In exclusive mode the RDMA devices go
into the pod, and udevd gives them another name, a new one each turn, as long after they have come back.

On mlx5 the driver makes the RDMA devices too, and each rebind makes both again; rdma-core's own program names them. On
Ethernet the VFs have no node GUID before each ADD, which binds them again for one. On InfiniBand each call gives them
another GUID, and IPoIB's netdevs are made again also where their RDMA devices move, in exclusive mode.

    python -m tests.lab.inside.udev_loop SETTING.json

Run inside the lab, as a program. SETTING has the CNI environment and configuration, the folders of ledger and IPAM, the
``mode``, the ``nic`` (tests/lab/nics.py), and which ``part`` of the turns (tests/support/seeds.py). Prints one JSON
object: how many turns, what was wrong by turn and in the end, and how many events udevd has seen.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cni.server.dispatch import answer
from mooring.nic.vf_settings import RtnetlinkVfSettings, VfSettingsApi
from mooring.program import log
from tests.cni.loops.fault_loop import differing, firmware
from tests.lab.inside.guid_settings import GuidVfSettings
from tests.support.polling import wait_until
from tests.support.seeds import Part

UDEVD = "/lib/systemd/systemd-udevd"
RUN = Path("/run/udev")
PCI = Path("/sys/bus/pci")
NUMVFS = PCI / "devices/0000:3b:00.0/sriov_numvfs"
GUIDS, OWN = Path("/tmp/guids"), {"0": "02:00:00:00:00:00:00:01", "1": "02:00:00:00:00:00:00:02"}
TURNS = 40
LEAST_MS, MOST_MS = 5, 200
# The lab has one CPU: who looks too often keeps udevd from its work.
_SETTLED_S, _PAUSE_S = 30.0, 0.5
# What udevd's net_id makes of the VFs' netdevs, and rdma-core's rdma_rename of their RDMA devices.
NETDEVS = {"simvf": "enp59s0f0v", "mlx5": "enp59s0f0v", "infiniband": "ibp59s0f0v"}
DEVICES = {"mlx5": "rocep59s0f0v", "infiniband": "ibp59s0f0v"}
_VF = 'ACTION=="add", SUBSYSTEM=="net", TEST=="device/physfn"'
_RULES = f"""
{_VF}, PROGRAM="{RUN}/late net"
{_VF}, IMPORT{{builtin}}="net_id", ENV{{ID_NET_NAME_PATH}}!="", NAME="$env{{ID_NET_NAME_PATH}}"
ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="{RUN}/late infiniband"
"""
_NAME_RDMA = {
    "simvf": f"{RUN}/name-rdma %k",
    # As in rdma-core's 60-rdma-persistent-naming.rules.
    "mlx5": "/lib/udev/rdma_rename %k NAME_FALLBACK",
    "infiniband": "/lib/udev/rdma_rename %k NAME_FALLBACK",
}
_SCRIPTS = {
    "late": f"echo $1 >>{RUN}/seen; sleep $(cat {RUN}/late-$1)",
    # As rdma-core's rdma_rename does: by the name that the device had when it appeared.
    "name-rdma": f"rdma dev set $1 name roce$(cat {RUN}/turn)v${{1##*v}}",
}
_TURN = re.compile(r"^roce[0-9]+(?=v)")
Setting = dict[str, Any]


def start_udevd(setting: Setting) -> None:
    """Write the rules and start udevd; make the VFs, and let it name them. The PFs keep their names."""
    nic = setting["nic"]
    (RUN / "rules.d").mkdir(parents=True)
    name_rdma = f'ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="{_NAME_RDMA[nic]}"\n'
    (RUN / "rules.d" / "85-late-names.rules").write_text(_RULES + name_rdma)
    # rdma-core's own rule would rename at once.
    (RUN / "rules.d" / "60-rdma-persistent-naming.rules").touch()
    for name, text in _SCRIPTS.items():
        (RUN / name).write_text(f"#!/bin/sh\n{text}\n")
        (RUN / name).chmod(0o755)
    delay(0, LEAST_MS, LEAST_MS)
    if nic == "infiniband":
        give_guids()
    subprocess.run((UDEVD, "--daemon"), check=True, capture_output=True)
    NUMVFS.write_text("2")
    if nic == "infiniband":
        for vf in OWN:
            subprocess.run(("ip", "link", "set", "ib0", "vf", vf, "state", "auto"), check=True)
    if nic == "simvf" and setting["mode"] == "exclusive":
        wait_named(setting, ())
        for vf in OWN:
            netdev = f"{NETDEVS[nic]}{vf}"
            subprocess.run(("rdma", "link", "add", f"rxv{vf}", "type", "rxe", "netdev", netdev), check=True)
        wait_named(setting, ("roce0v0", "roce0v1"))
    else:
        wait_named(setting, devices_of(setting))


def give_guids() -> None:
    """Give InfiniBand VFs GUIDs before their driver is bound: the PF remembers those of VFs that were removed."""
    NUMVFS.write_text("2")
    for vf, guid in OWN.items():
        for kind in ("node_guid", "port_guid"):
            subprocess.run(("ip", "link", "set", "ib0", "vf", vf, kind, guid), check=True)
    NUMVFS.write_text("0")


def forget_guids(setting: Setting) -> None:
    """Take the admin MACs away from mlx5's Ethernet VFs and bind them again: they have no node GUID of their own."""
    for vf, pci in enumerate(setting["given"].values()):
        subprocess.run(("ip", "link", "set", "eth0", "vf", str(vf), "mac", "00:00:00:00:00:00"), check=True)
        (PCI / "devices" / pci / "driver/unbind").write_text(pci)
        (PCI / "drivers_probe").write_text(pci)
    wait_named(setting, devices_of(setting))


def devices_of(setting: Setting) -> set[str]:
    """Return the lasting names of the VFs' RDMA devices; those of the plain NIC change each turn."""
    nic = setting["nic"]
    return {f"{DEVICES[nic]}{vf}" for vf in OWN} if nic in DEVICES else set()


def wait_named(setting: Setting, devices: Iterable[str]) -> None:
    """Wait until udevd has named the VFs' netdevs, and RDMA devices."""
    netdevs = {f"{NETDEVS[setting['nic']]}{vf}" for vf in OWN}
    wait_until(lambda: names("ip", "-j", "link", "show") >= netdevs, f"udevd names {netdevs}", pause_s=_PAUSE_S)
    wanted = set(devices)
    wait_until(lambda: names("rdma", "-j", "dev", "show") >= wanted, f"udevd names {wanted}", pause_s=_PAUSE_S)


def delay(turn: int, net_ms: int, infiniband_ms: int) -> None:
    """Set how long after a device's appearance udevd names it, and the part of RDMA devices' names that changes."""
    (RUN / "turn").write_text(f"{turn}\n")
    for name, ms in (("net", net_ms), ("infiniband", infiniband_ms)):
        (RUN / f"late-{name}").write_text(f"{ms / 1000:.3f}\n")


def settle(setting: Setting, before: dict[str, Any]) -> dict[str, Any]:
    """Wait until udevd has handled every event, and all is as before or a while has passed; return the state then."""
    with suppress(AssertionError):
        wait_until(lambda: not differing(before, state(setting)), "as before", _SETTLED_S, _PAUSE_S)
    subprocess.run(("udevadm", "settle", "-t", str(round(_SETTLED_S))), check=True)
    return state(setting)


def names(*command: str) -> set[str]:
    """Return the names of the host's links or RDMA devices."""
    return {device["ifname"] for device in shown(*command)}


def shown(*command: str) -> Any:
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def state(setting: Setting) -> dict[str, Any]:
    """Return what must be as before on the host once udevd is done; a netdev that is made again has another index."""
    kept = ("ifname", "mtu", "flags", "altnames", "vfinfo_list", "parentdev")
    links = [{name: link.get(name) for name in kept} for link in shown("ip", "-d", "-j", "link", "show")]
    files = {
        folder: sorted(path.name for path in Path(setting[folder]).rglob("*") if path.name[:1].isdigit())
        for folder in ("ledger", "ipam")
    }
    # Which turn's name a device has is udevd's matter.
    rdma = sorted(_TURN.sub("roce", device["ifname"]) for device in shown("rdma", "-j", "dev", "show"))
    return {
        "links": sorted(links, key=str),
        "rdma": rdma,
        "guids": json.loads(GUIDS.read_text()),
        **files,
        "firmware": firmware(),
    }


def vf_settings_of(setting: Setting) -> VfSettingsApi:
    """Return the kernel's own settings; the plain NIC takes no GUIDs."""
    return GuidVfSettings(GUIDS) if setting["nic"] == "simvf" else RtnetlinkVfSettings()


def run(setting: Setting, command: str) -> int:
    """Make one call; return its exit status, and leave the reason of a failure in the log."""
    environment = {**setting["environment"], "CNI_COMMAND": command}
    done = answer(environment, json.dumps(setting["conf"]).encode(), lambda: vf_settings_of(setting))
    if done.status:
        print(command, done.text, file=sys.stderr)
    return done.status


def turn(setting: Setting) -> list[str]:
    """Return what was wrong with one ADD and one DEL."""
    if setting["nic"] == "mlx5":
        forget_guids(setting)
    added = run(setting, "ADD")
    wrong = in_pod(setting) if added == 0 else ["ADD failed"]
    return wrong if run(setting, "DEL") == 0 else [*wrong, "DEL failed"]


def in_pod(setting: Setting) -> list[str]:
    """Return what the pod lacks of what it was given."""
    wrong = []
    links = {link["ifname"]: link for link in shown("ip", "-n", "pod", "-j", "-d", "link", "show")}
    for name, pci in setting["given"].items():
        if links.get(name, {}).get("parentdev") != pci:
            wrong.append(f"in the pod: no {name} of {pci} among {sorted(links)}")
    if setting["mode"] == "exclusive":
        devices = shown("ip", "netns", "exec", "pod", "rdma", "-j", "dev", "show")
        found = {device["ifname"] for device in devices}
        if len(found) != len(setting["given"]) or ((lasting := devices_of(setting)) and found != lasting):
            wrong.append(f"in the pod: rdma devices {devices}")
    return wrong


def main() -> int:
    log.set_up("udev-loop")
    setting: Setting = json.loads(Path(sys.argv[1]).read_text())
    part = Part(**setting["part"])
    GUIDS.write_text(json.dumps(OWN))
    start_udevd(setting)
    if setting["nic"] == "mlx5":
        forget_guids(setting)
    before = state(setting)
    wrong: dict[str, list[str]] = {}
    turns = part.of(range(1, TURNS + 1), "udev")
    for number in turns:
        # Short ones more often: a call's own steps take milliseconds.
        chance = part.random(f"udev {number}")
        delays = [round(LEAST_MS * (MOST_MS / LEAST_MS) ** chance.random()) for _ in range(2)]
        delay(number, *delays)
        if found := turn(setting):
            wrong[f"turn {number}, delays {delays} ms"] = found
    if setting["nic"] == "mlx5":
        forget_guids(setting)
    after = settle(setting, before)
    if different := differing(before, after):
        wrong["in the end"] = [f"{name}: {before[name]} -> {after[name]}" for name in different]
    seen = (RUN / "seen").read_text().split()
    counts = {kind: seen.count(kind) for kind in ("net", "infiniband")}
    print(json.dumps({"turns": len(turns), "events": counts, "wrong": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
