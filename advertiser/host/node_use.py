"""Read how a host's VFs are set and used, for a capture: PFs' settings, the host's own uses, GPUs, the kubelet."""

import re
from collections.abc import Iterator
from pathlib import Path

import structlog

from advertiser.formats.use_record import NodeUse, PodDevices, pod_devices
from advertiser.host.gpu.kfd import read_kfd
from advertiser.host.gpu.nvidia_proc import read_nvidia_proc
from advertiser.host.gpu.pci_gpus import read_gpu_functions
from advertiser.inventory.facts import Host
from advertiser.inventory.gpu.build_gpu_inventory import obstacles
from advertiser.inventory.gpu.facts import GpuFacts
from advertiser.inventory.matching import UnfitError, pf_port
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import VfSettingsApi
from mooring.nic.vf_users import user_of

# Below the kubelet's root folder.
_CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
_MOST_BYTES = 16 << 20
_ROUTE = re.compile(r"route to \S+")
_OF_HOST = "the host uses "
_log = structlog.get_logger()


def read_node_use(host: Host, settings: VfSettingsApi, sysfs: Path, proc: Path, kubelet: Path, now: float) -> NodeUse:
    """Return the host's use; what cannot be read is left out, with a line in the log."""
    nvidia, gpus = read_nvidia_proc(proc), read_gpu_functions(sysfs)
    uuids = {one.uuid: pci for pci, one in nvidia.items() if one.uuid}
    pools, devices = _read_checkpoint(kubelet / _CHECKPOINT, uuids)
    return NodeUse(
        taken_at=int(now),
        settings=dict(_settings(host, settings)),
        host=dict(_host_uses(host)),
        gpus={gpu.address: gpu.path for gpu in gpus},
        gpus_out=obstacles(GpuFacts(functions=gpus, nvidia=nvidia, kfd=read_kfd(sysfs))),
        pools=pools,
        devices=devices,
    )


def _settings(host: Host, settings: VfSettingsApi) -> Iterator[tuple[str, VfSettings]]:
    """Yield the settings of every VF by its PCI address, without MAC and GUID."""
    for function in host.functions:
        if not function.vfs:
            continue
        try:
            found = settings.read_all(pf_port(function)[0])
        except (OSError, UnfitError) as unreadable:
            _log.warning("settings of VFs cannot be read", pci=function.address, reason=str(unreadable))
            continue
        for index, vf in function.vfs.items():
            if vf.address is not None and (one := found.get(index)) is not None:
                yield (
                    vf.address,
                    VfSettings(
                        min_tx_rate=one.min_tx_rate,
                        max_tx_rate=one.max_tx_rate,
                        vlan=one.vlan,
                        qos=one.qos,
                        trust=one.trust,
                        spoofchk=one.spoofchk,
                        link_state=one.link_state,
                    ),
                )


def _host_uses(host: Host) -> Iterator[tuple[str, str]]:
    for function in host.functions:
        for vf in function.vfs.values():
            user = user_of(vf.devices, host.uses) if vf.address else None
            if vf.address and user is not None and user.startswith(_OF_HOST):
                yield vf.address, _ROUTE.sub("route", user)


def _read_checkpoint(
    path: Path, gpus: dict[str, str]
) -> tuple[dict[str, tuple[str, ...]] | None, tuple[PodDevices, ...] | None]:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
        return pod_devices(text, gpus)
    except (OSError, ValueError) as unreadable:
        _log.warning("the kubelet's devices cannot be read", file=str(path), reason=str(unreadable))
        return None, None
