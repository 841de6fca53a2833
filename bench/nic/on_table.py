"""Cases on devcluster's table of VF settings, with its mlx5 Ethernet."""

import errno
from collections.abc import Iterable
from pathlib import Path

from bench.nic.steps import FIRST_VFS, TOTAL_VFS, Seen, Step, seen
from devcluster.hosts.nic import describe_host
from devcluster.hosts.vftable import VfTable
from mooring.nic.settings import VfSettings

_PF = "enp4s0f0"
_OWN_MAC = "02:00:00:00:00:0f"


def run(cases: Iterable[Iterable[Step]], folder: Path) -> list[list[Seen]]:
    """Return what is seen after each step of each case; the table is a file in ``folder``."""
    table = VfTable(folder / "vftable.json")
    host = describe_host("n1", 1, vfs=FIRST_VFS, total=TOTAL_VFS, nics=["mlx5-ethernet"])
    outcomes = []
    for steps in cases:
        table.reset(host)
        outcomes.append([_run_step(table, step) for step in steps])
    return outcomes


def _run_step(table: VfTable, step: Step) -> Seen:
    bound, answer = None, "ok"
    if step.refused:
        table.change_pf(_PF, refused_command=step.refused, firmware_refuses=1000)
    try:
        if step.event == "write":
            table.write(_PF, step.number, VfSettings(**step.settings))
        elif step.event == "numvfs":
            table.sriov_configure(_PF, step.number)
        elif step.event == "reload":
            table.reload(_PF)
        else:
            node_guid, mac = table.bind(_PF, step.number, _OWN_MAC)
            bound = ("own" if mac == _OWN_MAC else mac, node_guid)
    except OSError as refused:
        answer = errno.errorcode[refused.errno or 0]
    if step.refused:
        table.change_pf(_PF, firmware_refuses=0)
    weights = table.weights(_PF)
    vfs = (
        (settings, str(weights.get(vf, "outside")), table.checks_macs(_PF, vf), table.node_guid(_PF, vf))
        for vf, settings in table.read_all(_PF).items()
    )
    return seen(answer, vfs, bound)
