"""Two pods with one VF each, as the CNI plugin makes them: those of `mooring-node hardware-test`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cli.node.hardware.commands import CommandError
from cli.node.hardware.pods import Folders, pod
from cli.node.hardware.traffic.endpoints import endpoint
from cli.node.hardware.traffic.perftest import LocalReceiver, Pair
from mooring.annotations.assignment import AssignedVf
from mooring.nic.settings import VfSettings


def first_pf() -> str:
    """Return the first PF that has two VFs."""
    names = sorted(path.parts[4] for path in Path("/sys/class/net").glob("*/device/virtfn1"))
    if not names:
        raise CommandError("no PF of this machine has two VFs")
    return names[0]


@contextmanager
def two_pods(pf: str, limit_mbps: int | None) -> Iterator[Pair]:
    """Make a pair of pods whose VFs may send ``limit_mbps``, None for no limit; restore everything at the end."""
    with ExitStack() as stack:
        sender, receiver = (
            endpoint(stack.enter_context(pod(vf, _assigned(pf, vf, limit_mbps), Folders())), f"10.250.0.{vf + 1}")
            for vf in (0, 1)
        )
        yield Pair(sender, LocalReceiver(receiver))


def _assigned(pf: str, vf: int, limit_mbps: int | None) -> AssignedVf:
    pci = (Path("/sys/class/net") / pf / "device" / f"virtfn{vf}").readlink().name
    return AssignedVf(pf, vf, pci, "ethernet", "default", VfSettings(max_tx_rate=limit_mbps))
