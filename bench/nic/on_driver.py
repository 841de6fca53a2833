"""Cases on mlx5_core above the modelled chip; runs inside the lab, where the first PF has no VFs yet.

python -m bench.nic.on_driver CASES OUTCOMES      two files of JSON

Of what the firmware has, these are not compared: MAC, vlan, qos, strip, insert, state, max, egress and, unless it is
a spoof check's, ingress; on InfiniBand the port GUID and the policy.
"""

import errno
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from bench.nic.cases import COMMANDS
from bench.nic.steps import FIRST_VFS, TOTAL_VFS, Seen, Step, seen, steps_from_json
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import RtnetlinkVfSettings

_IS_IB = Path("/sys/class/net/ib0").exists()
_PF = "ib0" if _IS_IB else "eth0"
_PF_DEVICE = Path("/sys/class/net") / _PF / "device"
_CHIP = Path("/sys/module/mlx5chip/parameters")
# MLX5_CMD_STAT_INT_ERR, which mlx5_core makes EIO (cmd_status_to_err).
_INTERNAL_ERROR = 1
_VPORT = re.compile(r"(\d+) mac \S+ guid ([0-9a-f]+) .* weight (-?\d+) max \d+ ingress (-?\d+) egress")
_IB_VPORT = re.compile(r"(\d+) node_guid ([0-9a-f]+) port_guid ([0-9a-f]+) policy")
_LONGEST_BIND_S = 20
_NO_GUID_AND_POLICY = VfSettings(guid="00:00:00:00:00:00:00:00", link_state="disable")


def run(cases: Iterable[Iterable[Step]]) -> list[list[Seen]]:
    """Return what is seen after each step of each case."""
    pci = _PF_DEVICE.resolve()
    (pci / "sriov_drivers_autoprobe").write_text("0")
    (_CHIP / "fault_status").write_text(str(_INTERNAL_ERROR))
    outcomes, is_anew = [], False
    for case in cases:
        steps = list(case)
        if _IS_IB:
            # They outlive the VFs (sriov_restore_guids).
            for vf in range(TOTAL_VFS):
                RtnetlinkVfSettings().write(_PF, vf, _NO_GUID_AND_POLICY)
        # VFs beyond FIRST_VFS are forgotten only when they were made once (mlx5_eswitch_clear_vf_vports_info).
        for vfs in (0, FIRST_VFS) if is_anew else (0, TOTAL_VFS, 0, FIRST_VFS):
            (pci / "sriov_numvfs").write_text(str(vfs))
        outcomes.append([_run_step(pci, step) for step in steps])
        is_anew = all(step.event != "numvfs" and step.number < FIRST_VFS for step in steps)
    return outcomes


def _run_step(pci: Path, step: Step) -> Seen:
    bound, answer = None, "ok"
    if step.refused:
        (_CHIP / "fault").write_text(f"refused 0 {COMMANDS[step.refused]:#x}")
    try:
        if step.event == "write":
            RtnetlinkVfSettings().write(_PF, step.number, VfSettings(**step.settings))
        elif step.event == "numvfs":
            (pci / "sriov_numvfs").write_text(str(step.number))
        elif step.event == "reload":
            _reload(pci)
        else:
            bound = _bind(pci, step.number)
    except OSError as refused:
        answer = errno.errorcode[refused.errno or 0]
    (_CHIP / "fault").write_text("none")
    return seen(answer, _vfs(), bound)


def _vfs() -> Iterable[tuple[VfSettings, str, bool, str]]:
    listed = RtnetlinkVfSettings().read_all(_PF)
    pattern = _IB_VPORT if _IS_IB else _VPORT
    in_firmware = {int(found[1]): found for found in pattern.finditer((_CHIP / "vports").read_text())}
    for vf, settings in listed.items():
        if _IS_IB:
            yield settings, "outside", False, _colons(f"{int(in_firmware[vf][2], 16):016x}")
            continue
        _, guid, weight, entries = in_firmware[vf].groups()
        # With spoof check the ingress ACL has two entries: allow the VF's MAC, drop the rest.
        is_checked = bool(settings.spoofchk) and int(entries) == 2
        yield settings, "outside" if weight == "-1" else weight, is_checked, _colons(f"{int(guid, 16):016x}")


def _bind(pci: Path, number: int) -> tuple[str, str]:
    """Bind a VF's driver, read what it has read, and unbind it."""
    vf = (pci / f"virtfn{number}").resolve()
    admin = RtnetlinkVfSettings().read(_PF, number).mac
    (pci / "sriov_drivers_autoprobe").write_text("1")
    Path("/sys/bus/pci/drivers_probe").write_text(vf.name)
    (pci / "sriov_drivers_autoprobe").write_text("0")
    address = _only(vf / "net", "address")
    guid = _only(vf / "infiniband", "node_guid")
    (vf / "driver/unbind").write_text(vf.name)
    if _IS_IB:
        return _colons(address.replace(":", "")[-16:]), guid
    return address if address == admin else "own", guid


def _reload(pci: Path) -> None:
    """Reload the PF's driver, its VFs staying."""
    done = subprocess.run(["devlink", "dev", "reload", f"pci/{pci.name}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"devlink dev reload: {done.stderr}")


def _only(folder: Path, name: str) -> str:
    """Return what the only device of a class has in a file; it may appear a moment later."""
    end = time.monotonic() + _LONGEST_BIND_S
    while not (found := list(folder.glob(f"*/{name}"))):
        if time.monotonic() > end:
            raise TimeoutError(f"{folder} has no device after {_LONGEST_BIND_S} s")
        time.sleep(0.01)
    return found[0].read_text().strip()


def _colons(digits: str) -> str:
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


def main() -> int:
    cases, outcomes = map(Path, sys.argv[1:])
    outcomes.write_text(json.dumps(run(map(steps_from_json, json.loads(cases.read_text())))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
