"""Cases on devcluster's table of VF settings, with its mlx5 Ethernet or InfiniBand."""

import errno
from collections.abc import Iterable
from pathlib import Path

from bench.nic.steps import FIRST_VFS, TOTAL_VFS, Seen, Step, seen
from devcluster.hosts.nic import describe_host
from devcluster.hosts.vftable import VfTable
from mooring.names import LinkType
from mooring.nic.settings import VfSettings

_OWN_MAC = "02:00:00:00:00:0f"


def run(link: LinkType, cases: Iterable[Iterable[Step]], folder: Path) -> list[list[Seen]]:
    """Return what is seen after each step of each case; the table is a file in ``folder``."""
    table = VfTable(folder / "vftable.json")
    host = describe_host("n1", 1, vfs=FIRST_VFS, total=TOTAL_VFS, nics=[f"mlx5-{link}"])
    pf = host.pfs[0].name
    outcomes = []
    for steps in cases:
        table.reset(host)
        outcomes.append([_run_step(link, table, pf, step) for step in steps])
    return outcomes


def _run_step(link: LinkType, table: VfTable, pf: str, step: Step) -> Seen:
    bound, answer = None, "ok"
    if step.refused:
        table.change_pf(pf, refused_command=step.refused, firmware_refuses=1000)
    try:
        if step.event == "write":
            table.write(pf, step.number, VfSettings(**step.settings))
        elif step.event == "numvfs":
            table.sriov_configure(pf, step.number)
        elif step.event == "reload":
            table.reload(pf)
        else:
            node_guid, mac = table.bind(pf, step.number, _OWN_MAC)
            # One write sets both GUIDs, of the device and of the port, which IPoIB's address ends with.
            address = node_guid if link == "infiniband" else mac
            bound = ("own" if address == _OWN_MAC else address, node_guid)
    except OSError as refused:
        answer = errno.errorcode[refused.errno or 0]
    if step.refused:
        table.change_pf(pf, firmware_refuses=0)
    weights = table.weights(pf)
    vfs = (
        (settings, str(weights.get(vf, "outside")), table.checks_macs(pf, vf), table.node_guid(pf, vf))
        for vf, settings in table.read_all(pf).items()
    )
    return seen(answer, vfs, bound)
