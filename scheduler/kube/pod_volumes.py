"""The volumes of a pod that restrict its nodes: its claims, and disks that only one node may use. Pure."""

from collections.abc import Collection, Iterator

import msgspec

from scheduler.kube.objects import Pod, Volume


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A claim by key (namespace/name); ``owner`` is the pod's uid if the claim must belong to the pod."""

    key: str
    owner: str = ""

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


class Disk(msgspec.Struct, frozen=True, gc=False):
    """A disk that only one node may write to; any of ``places`` (Ceph's monitors) identifies it."""

    identity: tuple[str, ...]
    read_only: bool = False
    places: tuple[str, ...] = ()

    def conflicts(self, other: "Disk") -> bool:
        if self.identity != other.identity or (self.places and not set(self.places) & set(other.places)):
            return False
        return not (self.read_only and other.read_only)


class PodVolumes(msgspec.Struct, frozen=True, gc=False):
    """The volumes of one pod; false if none of them restricts its nodes."""

    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.disks)


NO_VOLUMES = PodVolumes()
# Each volume is looked up on every node, and compared with those of other pods; so is each monitor of a disk.
MOST_VOLUMES = 256


def read_pod_volumes(pod: Pod) -> PodVolumes:
    """Return the volumes of a pod; raise ValueError if there are too many."""
    _hold_to_bounds(pod.spec.volumes or ())
    claims: list[ClaimUse] = []
    disks: list[Disk] = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}", pod.metadata.uid))
        else:
            disks += _disks(volume)
    return PodVolumes(tuple(dict.fromkeys(claims)), tuple(disks)) if claims or disks else NO_VOLUMES


def _hold_to_bounds(volumes: Collection[Volume]) -> None:
    claim_count = sum(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in volumes)
    disks = sum(1 + len(volume.rbd.monitors or ()) for volume in volumes if volume.rbd is not None)
    disks += sum(_is_disk(volume) for volume in volumes)
    if claim_count + disks > MOST_VOLUMES:
        raise ValueError(f"{claim_count + disks} claims, disks and disk monitors exceed the limit of {MOST_VOLUMES}")


def _is_disk(volume: Volume) -> bool:
    return bool(volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi)


def _disks(volume: Volume) -> Iterator[Disk]:
    if volume.gce_persistent_disk:
        yield Disk(("gce", volume.gce_persistent_disk.pd_name), volume.gce_persistent_disk.read_only)
    if volume.aws_elastic_block_store:
        # Two pods may not use one of these even read-only.
        yield Disk(("aws", volume.aws_elastic_block_store.volume_id))
    if volume.iscsi:
        yield Disk(("iscsi", volume.iscsi.iqn), volume.iscsi.read_only)
    if volume.rbd:
        rbd = volume.rbd
        yield Disk(("rbd", rbd.pool, rbd.image), rbd.read_only, tuple(rbd.monitors or ()))
