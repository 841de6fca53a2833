"""The ends of traffic: a pod's RDMA device, and the entry of its port's GID table that the traffic uses."""

import time
from dataclasses import dataclass

from cli.node.hardware.commands import CommandError, attempt, run
from cli.node.hardware.pods import IFNAME, Pod

_READY_S = 60.0
_POLL_S = 0.05
_ACTIVE = "4:"
# The first entry is made of the port's GUID. mlx5 wants a GRH from VFs, which share the LID of their PF's port
# (grh_required in mlx5_query_hca_port, drivers/infiniband/hw/mlx5/main.c): perftest sends one where it is given a GID.
_INFINIBAND_GID = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod that traffic goes to or comes from; ``address`` is its IPv4 address, None on InfiniBand."""

    pod: Pod
    rdma: str
    gid: int
    address: str | None = None

    @property
    def device_options(self) -> tuple[str, ...]:
        """The options by which perftest finds device and GID."""
        return ("-d", self.rdma, "-x", str(self.gid))


def endpoint(pod: Pod, address: str, rdma: str | None = None) -> Endpoint:
    """Return a pod's end of traffic as soon as it can send; raise CommandError if that takes too long.

    On Ethernet the pod's interface gets the address, and the RDMA device is found by the GID that the kernel makes of
    it. On InfiniBand ``rdma`` is the device, and its port has to become ACTIVE: no address is needed.
    """
    # perftest's sides find each other through the pod's own loopback interface.
    run((*pod.inside, "ip", "link", "set", "lo", "up"))
    if pod.vf.link == "infiniband":
        return _on_infiniband(pod, rdma)
    run((*pod.inside, "ip", "address", "add", f"{address}/16", "dev", IFNAME))
    deadline = time.monotonic() + _READY_S
    while (found := _on_ethernet(pod, address)) is None:
        if time.monotonic() > deadline:
            raise CommandError(f"no RDMA device in {pod.name} has a GID for RoCE v2 of its address")
        time.sleep(_POLL_S)
    return found


def _on_infiniband(pod: Pod, rdma: str | None) -> Endpoint:
    if rdma is None:
        raise CommandError(f"the VF in {pod.name} has no RDMA device")
    command = (*pod.inside, "cat", f"/sys/class/infiniband/{rdma}/ports/1/state")
    deadline = time.monotonic() + _READY_S
    while not (state := attempt(command) or "unreadable").startswith(_ACTIVE):
        if time.monotonic() > deadline:
            raise CommandError(f"port 1 of {rdma} in {pod.name} is {state!r}, not ACTIVE: is there a subnet manager?")
        time.sleep(_POLL_S)
    return Endpoint(pod, rdma, _INFINIBAND_GID)


def _on_ethernet(pod: Pod, address: str) -> Endpoint | None:
    """Read a pod from inside; in exclusive mode it sees its own RDMA device and no other."""
    ports = "/sys/class/infiniband/*/ports/1"
    # Entries of the GID table that are not in use cannot be read: grep ignores them.
    script = f"grep -sH . {ports}/gids/* {ports}/gid_attrs/types/* || true"
    values = dict(line.split(":", 1) for line in run((*pod.inside, "sh", "-c", script)).splitlines())
    wanted = "".join(f"{int(part):02x}" for part in address.split("."))
    for path, value in values.items():
        kind = values.get(path.replace("/gids/", "/gid_attrs/types/"))
        if value.replace(":", "") == f"{'ffff' + wanted:0>32}" and kind == "RoCE v2":
            return Endpoint(pod, path.split("/")[4], int(path.rpartition("/")[2]), address)
    return None
