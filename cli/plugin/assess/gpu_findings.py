"""Findings about pods whose VFs are near none of their GPUs, though other PFs of the node are. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from advertiser.inventory import port
from advertiser.inventory.facts import PciFunction
from cli.plugin.assess.findings import Evidence, Finding
from cli.plugin.assess.holders import Holding
from cli.plugin.assess.snapshot import Snapshot
from mooring.gpu.inventory import common_bridges


def find(snapshot: Snapshot, held: Mapping[str, Sequence[Holding]]) -> Iterator[Finding]:
    """Yield a finding for each pod and node."""
    for node, capture in snapshot.captures.items():
        gpus = capture.use.gpus if capture.use is not None else {}
        pfs = [function for function in capture.host.functions if function.vfs]
        owners = {vf.address: function for function in pfs for vf in function.vfs.values() if vf.address is not None}
        if not gpus or not pfs:
            continue
        by_pod: dict[str, set[str]] = {}
        for one in held.get(node, ()):
            by_pod.setdefault(one.pod, set()).add(one.pci)
        for pod, devices in by_pod.items():
            own = {pci: gpus[pci] for pci in sorted(devices) if pci in gpus}
            vfs = {pci: owners[pci] for pci in sorted(devices & owners.keys())}
            yield from _far(node, pod, own, vfs, pfs)


def _far(
    node: str, pod: str, gpus: Mapping[str, Sequence[str]], vfs: Mapping[str, PciFunction], pfs: Sequence[PciFunction]
) -> Iterator[Finding]:
    """Yield a finding for each VF that is near no GPU, if a GPU of the pod is near none of its VFs."""
    nearest = {gpu: max(pfs, key=lambda pf: common_bridges(path, pf.path)) for gpu, path in gpus.items()}

    def is_near(pf: PciFunction, gpu: str) -> bool:
        return common_bridges(gpus[gpu], pf.path) >= common_bridges(gpus[gpu], nearest[gpu].path)

    alone = [gpu for gpu in gpus if not any(is_near(pf, gpu) for pf in vfs.values())]
    for vf, pf in vfs.items():
        if alone and not any(is_near(pf, gpu) for gpu in gpus):
            yield _finding(node, pod, gpus, alone[0], vf, pf, nearest[alone[0]])


def _finding(
    node: str,
    pod: str,
    gpus: Mapping[str, Sequence[str]],
    gpu: str,
    vf: str,
    pf: PciFunction,
    nearest: PciFunction,
) -> Finding:
    return Finding(
        "gpu-far",
        f"pod/{pod}",
        f"VF {vf} of {_name(pf)} on {node} is near none of the pod's GPUs; {_name(nearest)} is nearest to {gpu}",
        (
            Evidence(f"node/{node}", f"/sys/bus/pci/devices/{gpu}", "/".join(gpus[gpu])),
            Evidence(f"node/{node}", f"/sys/bus/pci/devices/{vf}", "/".join(pf.path)),
            Evidence(f"node/{node}", f"/sys/bus/pci/devices/{nearest.address}", "/".join(nearest.path)),
        ),
    )


def _name(function: PciFunction) -> str:
    netdev = port.main_netdev(function.netdevs)
    return netdev.name if netdev is not None else function.address
