"""Run inside the lab: mooring-init.service as shipped, under a real systemd and udevd, while drivers are reloaded.

A PF's driver is unbound and bound through sysfs, as a reload does: the kernel takes the VFs, and emits `bind`. Prints
one JSON object of what was seen.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from advertiser.host.read_host import read_boot_id
from cli.node.plan import init_unit
from cli.node.plan.states import File
from mooring.files import write_file
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from tests.lab.inside.systemd_scenario import Systemd, write_program
from tests.lab.inside.udev_loop import UDEVD
from tests.support.polling import reaches

UNITS, LOG = Path("/run/systemd/system"), Path("/run/init.log")
STATE, RUN = Path("/var/lib/mooring"), Path("/run/mooring")
DEVICES, DRIVERS = Path("/sys/bus/pci/devices"), Path("/sys/bus/pci/drivers")
PFS = ("0000:3b:00.0", "0000:3b:00.1")
VF0 = "0000:3b:01.0"
OFFER = Path("/run/configmap/offer.yaml")
TARGET = "[Unit]\nDescription=lab\nDefaultDependencies=no\n"


def until(condition: Callable[[], bool], limit_s: float = 90) -> None:
    assert reaches(condition, limit_s, pause_s=0.1), LOG.read_text() if LOG.exists() else "no log"


def install() -> None:
    """Put units and rules where the installation puts them, but below /run: the lab's /etc is this machine's own."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/opt"], check=True)
    write_program(Path("/opt/mooring/bin/mooring-advertiser"), sys.executable, "-m", "advertiser")
    wants, drop_ins = UNITS / "lab.target.wants", UNITS / f"{init_unit.SERVICE}.d"
    for folder in (wants, drop_ins, Path("/run/udev/rules.d")):
        folder.mkdir(parents=True)
    (UNITS / "lab.target").write_text(TARGET)
    here = f"WorkingDirectory={Path.cwd()}\nEnvironment=MOORING_NODE_NAME=lab\nStandardError=append:{LOG}\n"
    (drop_ins / "lab.conf").write_text(f"[Service]\n{here}")
    for name in (init_unit.SERVICE, init_unit.PATH):
        (UNITS / name).write_text(Path("cli/node/units", name).read_text())
        (wants / name).symlink_to(f"../{name}")
    path, state = init_unit.rules()
    assert isinstance(state, File)
    Path(path.replace("/etc/", "/run/", 1)).write_text(state.text)


def vfs() -> list[int]:
    """Return of each PF how many VFs have a driver, -1 while the PF has none itself."""
    found = []
    for pf in PFS:
        links = [*(DEVICES / pf).glob("virtfn*")]
        bound = (DEVICES / pf / "driver").exists()
        found.append(sum((link / "driver").exists() for link in links) if bound else -1)
    return found


def hand_over(*entries: dict[str, object]) -> tuple[int, str]:
    """Do as the advertiser's init container does; return its exit status and the end of its log."""
    OFFER.parent.mkdir(exist_ok=True)
    OFFER.write_text(json.dumps({"v": 1, "pfs": list(entries)}))
    command = [sys.executable, "-m", "advertiser", "hand-over", "--offer", str(OFFER), "--node-name", "lab"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()[-1]


def unbind(*pfs: str) -> None:
    for pf in pfs:
        (DEVICES / pf / "driver/unbind").write_text(pf)


def bind(driver: str, *pfs: str) -> None:
    for pf in pfs:
        (DRIVERS / driver / "bind").write_text(pf)


def hold_vf(systemd: Systemd) -> str:
    """Put the netdev of VF 0 into a pod's namespace, with its entry in the ledger; return the VF's MAC."""
    subprocess.run(["ip", "netns", "add", "pod"], check=True)
    (netdev,) = (path.name for path in (DEVICES / VF0 / "net").iterdir())
    mac = (DEVICES / VF0 / "net" / netdev / "address").read_text().strip()
    entry = LedgerEntry(
        *(VF0, "eth0", 0, "held", read_boot_id(), "u1", "ns/p", "c1", "net1"),
        Netns("/run/netns/pod", 1),
        Original(netdev),
    )
    write_file(STATE / ledger_name(VF0), dump_ledger_entry(entry))
    subprocess.run(["ip", "link", "set", netdev, "netns", "pod"], check=True)
    return mac


def mac_of(vf: str) -> str:
    return next((DEVICES / vf / "net").iterdir(), Path("/")).joinpath("address").read_text().strip()


def logged(event: str) -> int:
    return LOG.read_text().count(event) if LOG.exists() else 0


def state(systemd: Systemd) -> str:
    return systemd.ask("systemctl", "is-active", init_unit.SERVICE)


def settled(systemd: Systemd) -> bool:
    """Return whether no run is under way and none is asked for."""
    bound = RUN / "init/bound"
    return state(systemd) in ("inactive", "failed") and not (bound.is_dir() and any(bound.iterdir()))


def main() -> None:
    install()
    driver = (DEVICES / PFS[0] / "driver").readlink().name
    subprocess.run([UDEVD, "--daemon"], check=True, stderr=subprocess.DEVNULL)
    systemd = Systemd()
    until(lambda: (RUN / "init/result.json").exists() and settled(systemd))
    both = [{"match": {"pci": pf}, "init": {"vfs": 2}} for pf in PFS]
    seen: dict[str, object] = {"without_offer": vfs()}
    seen["handed_over"] = [hand_over(*both)[0], vfs()]
    until(lambda: settled(systemd))

    mac = hold_vf(systemd)
    unbind(PFS[0])
    seen["unbound"] = vfs()
    bind(driver, PFS[0])
    until(lambda: vfs() == [2, 2])
    until(lambda: settled(systemd))
    seen["reloaded"] = [vfs(), state(systemd), mac_of(VF0) == mac]

    runs = logged("drivers of PFs were bound")
    unbind(*PFS)
    bind(driver, *PFS)
    until(lambda: vfs() == [2, 2])
    until(lambda: settled(systemd))
    seen["both"] = [vfs(), logged("drivers of PFs were bound") - runs]

    for _ in range(4):
        unbind(PFS[1])
        bind(driver, PFS[1])
        time.sleep(0.3)
    until(lambda: vfs() == [2, 2])
    until(lambda: settled(systemd))
    seen["many"] = [vfs(), systemd.ask("systemctl", "is-active", init_unit.PATH)]

    # The PF's netdev gets the name that the offer has only after the second try.
    late = {"match": {"name": "late0"}, "init": {"vfs": 3}}
    seen["late_offer"] = hand_over(late)
    tries = logged("init retries")
    unbind(PFS[0])
    bind(driver, PFS[0])
    until(lambda: logged("init retries") == tries + 2)
    (netdev,) = (path.name for path in (DEVICES / PFS[0] / "net").iterdir() if not path.name.startswith("wire"))
    subprocess.run(["ip", "link", "set", netdev, "down"], check=True)
    subprocess.run(["ip", "link", "set", netdev, "name", "late0"], check=True)
    until(lambda: settled(systemd))
    seen["third_try"] = [vfs()[0], state(systemd)]
    systemd.end()
    print(json.dumps({"seen": seen}))


if __name__ == "__main__":
    main()
