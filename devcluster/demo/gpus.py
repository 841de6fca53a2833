"""Check from outside what GPUs pods have: device nodes in the containers, and bridges by the host's sysfs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.api import Object
from devcluster.cluster import Cluster
from devcluster.demo.check import ContainerView, Verdict, assignment, is_running
from devcluster.hosts.layout import Layout


@dataclass(frozen=True, slots=True)
class GpuInUse:
    """A GPU that was decided for a container: ``node_name`` is its device node, ``meets`` where it meets its VF.

    ``vf`` is the VF beside it, None without any; ``nearest`` is the lowest bridge that it shares with any PF.
    """

    pod: str
    node: str
    container: str
    pci: str
    uuid: str
    node_name: str
    vf: str | None
    meets: str
    nearest: str


def look(cluster: Cluster, pods: Mapping[str, Object]) -> list[GpuInUse]:
    """Return the GPUs of all running pods, by what was decided and what their hosts say of it."""
    return [gpu for name, pod in pods.items() if is_running(pod) for gpu in _of_pod(cluster, name, pod)]


def _of_pod(cluster: Cluster, name: str, pod: Object) -> list[GpuInUse]:
    decided = assignment(pod) or {}
    given = decided.get("ext", {}).get("gpu", {})
    node = pod["spec"]["nodeName"]
    host = cluster.layout(node)
    found = []
    for container, units in given.get("containers", {}).items():
        for pci in units:
            beside = given.get("beside", {}).get(pci)
            vf = decided["vfs"][beside]["pci"] if beside is not None else None
            uuid, minor = _told(host, pci)
            meets = _common(host, pci, vf) if vf is not None else ""
            found.append(GpuInUse(name, node, container, pci, uuid, f"nvidia{minor}", vf, meets, _nearest(host, pci)))
    return found


def _told(host: Layout, pci: str) -> tuple[str, str]:
    """Return a GPU's UUID and minor, as its driver tells them."""
    lines = (host.proc / "driver/nvidia/gpus" / pci / "information").read_text().splitlines()
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return told["GPU UUID"], told["Device Minor"]


def _bridges(host: Layout, pci: str) -> tuple[str, ...]:
    """Return the folders that a function lies under, from the root down."""
    return (host.sys / "bus/pci/devices" / pci).resolve().parent.relative_to(host.sys.resolve() / "devices").parts


def _common(host: Layout, one: str, other: str) -> str:
    """Return the lowest bridge that two functions lie under; empty if they meet in the CPU."""
    pairs = zip(_bridges(host, one)[1:], _bridges(host, other)[1:], strict=False)
    lowest = ""
    for mine, theirs in pairs:
        if mine != theirs:
            break
        lowest = mine
    return lowest


def _nearest(host: Layout, pci: str) -> str:
    pfs = [path.parent.name for path in Path(host.sys / "bus/pci/devices").glob("*/sriov_totalvfs")]
    own = _bridges(host, pci)
    return max((_common(host, pci, pf) for pf in pfs), key=lambda bridge: own.index(bridge) if bridge else -1)


def exactly_given(gpus: Sequence[GpuInUse], views: Sequence[ContainerView], pairs: int) -> Verdict:
    """Check that containers see just their own GPUs, each in one pod, and that VFs lie below their GPUs' switches.

    ``pairs`` is how many GPUs with a VF must be there.
    """
    times = Counter((gpu.node, gpu.pci) for gpu in gpus)
    breaches = [f"{node} {pci} is given {count} times" for (node, pci), count in times.items() if count > 1]
    for view in views:
        own = {gpu.node_name for gpu in gpus if (gpu.pod, gpu.container) == (view.pod, view.name)}
        if view.gpus != own:
            breaches.append(f"{view.pod}/{view.name} sees {sorted(view.gpus)}, its own are {sorted(own)}")
    beside = [gpu for gpu in gpus if gpu.vf is not None]
    breaches += [f"{gpu.pod}: {gpu.pci} meets {gpu.vf} at {gpu.meets or 'no bridge'}" for gpu in beside if _apart(gpu)]
    breaches += [] if len(beside) == pairs else [f"{len(beside)} GPUs have a VF beside them, not {pairs}"]
    return Verdict(3, "GPUs are those decided, each below one switch with its VF", len(gpus), tuple(breaches))


def _apart(gpu: GpuInUse) -> bool:
    return not gpu.meets or gpu.meets != gpu.nearest
