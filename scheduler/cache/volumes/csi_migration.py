"""Translate in-tree volumes to the CSI drivers that attach and count them. Pure.

All supported kubelets have migrated these, so a node's `storage.alpha.kubernetes.io/migrated-plugins` is not read.
Source: k8s.io/csi-translation-lib.
"""

from collections.abc import Iterator, Mapping

from scheduler.kube.storage_objects import VolumeSpec

_EBS = "ebs.csi.aws.com"
_GCE = "pd.csi.storage.gke.io"
_AZURE = "disk.csi.azure.com"
_CINDER = "cinder.csi.openstack.org"
_VSPHERE = "csi.vsphere.vmware.com"
_PORTWORX = "pxd.portworx.com"
_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": _EBS,
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
    "kubernetes.io/vsphere-volume": _VSPHERE,
    "kubernetes.io/portworx-volume": _PORTWORX,
}
# A driver's name, and what identifies the volume to it.
Handle = tuple[str, str]


def driver_of(provisioner: str) -> str:
    """Return the driver that attaches a provisioner's volumes."""
    return _DRIVERS.get(provisioner, provisioner)


def handle_of(volume: VolumeSpec) -> Handle | None:
    """Return a volume's handle for the driver that attaches it; None without a driver."""
    return next(_handles(volume), None)


def _handles(volume: VolumeSpec) -> Iterator[Handle]:
    if volume.csi is not None:
        yield volume.csi.driver, volume.csi.volume_handle
    if volume.aws_elastic_block_store is not None:
        # The zone may precede the id: aws://zone/vol-1.
        yield _EBS, volume.aws_elastic_block_store.volume_id.rpartition("/")[2]
    if volume.gce_persistent_disk is not None:
        yield _GCE, volume.gce_persistent_disk.pd_name
    if volume.azure_disk is not None:
        yield _AZURE, volume.azure_disk.disk_uri
    if volume.cinder is not None:
        yield _CINDER, volume.cinder.volume_id
    if volume.vsphere_volume is not None:
        yield _VSPHERE, volume.vsphere_volume.volume_path
    if volume.portworx_volume is not None:
        yield _PORTWORX, volume.portworx_volume.volume_id
