"""RDMA and networks requested in the words of other systems: what each becomes with Mooring. Pure.

Read are limits of device plugins, Multus' and GKE's annotations, claims of devices, the host's network and its
/dev/infiniband, and device names in the environment and in arguments.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.plugin.reports.lint.manifests import Place, PodPlace
from cli.plugin.reports.lint.other_networks import Networks, is_nic
from mooring import names

GPU = "mooring.dev/gpu"
# Other vendors' GPUs, whole or in parts: no network devices.
_GPU = re.compile(r"nvidia\.com/(p?gpu\b|vgpu|mig-).*|amd\.com/gpu.*|gpu\.intel\.com/.*|[^/]+/gpu")
# Source of the prefixes: k8s-rdma-shared-dev-plugin (`rdma/`), sriov-network-device-plugin (the pool's own, else
# `intel.com/`), sriov-network-operator (`openshift.io/`), NVIDIA's network operator (`nvidia.com/`).
_NETWORK = re.compile(
    r"rdma/.*|openshift\.io/.*|nvidia\.com/.*|mellanox\.com/.*"
    r"|[^/]+/.*(rdma|sriov|infiniband|roce|hca|mlnx|hostdev|vnic|efa|(^|[-_./])vfs?\b).*"
)
# A hundredth of a NIC (koordinator, pkg/scheduler/plugins/deviceshare: ResourceRDMA).
_HUNDREDTHS = "koordinator.sh/rdma"
# Every pod with a limit has the same devices, however high the limit is.
_SHARED = "rdma/"
_OURS = (*names.EXTENDED_RESOURCES, GPU)

_MULTUS = "k8s.v1.cni.cncf.io/networks"
# Multus' annotation for the network of eth0, and Spiderpool's, whose webhook adds networks and limits to the pod.
_DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
_SPIDERPOOL = ("cni.spidernet.io/network-resource-inject", "cni.spidernet.io/rdma-resource-inject")
# GKE: cloud.google.com/kubernetes-engine/docs/how-to/multi-network, the annotation of pods.
_GKE = "networking.gke.io/interfaces"
_VOLCENGINE = "k8s.volcengine.com/pod-networks"

# Kinds that define networks; Spiderpool's annotation is on them, too.
_NETWORK_KINDS = ("NetworkAttachmentDefinition", "SpiderMultusConfig")
_ATTACHING = (_MULTUS, _DEFAULT_NETWORK, _GKE, _VOLCENGINE, *_SPIDERPOOL)

# Variables that Mooring sets to the pod's own devices (`environment` in cri_shim/plan/inject.py), and others.
_SET_VARIABLES = ("NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST", "MOONCAKE_DEVICE", "MORI_RDMA_DEVICES")
_DEVICE_VARIABLES = (*_SET_VARIABLES, "NVSHMEM_HCA_PE_MAPPING", "PCIDEVICE_")
# The names that the kernel's drivers and rdma-core's udev rules give RDMA devices.
_DEVICE_NAME = re.compile(r"\b(mlx[45]_(bond_)?\d+|bnxt_re\d+|irdma\d+|ib[ps]\d+|roce[ps]\d+|erdma_\d+|ionic_\d+)")
_SETS_DEVICES = re.compile(rf"\b({'|'.join(_DEVICE_VARIABLES)})\w*=")


@dataclass(frozen=True, slots=True)
class Advice:
    """What a pod requests of other systems, in order.

    It ``is_refused`` if Mooring would place the pod without that, and ``is_for_others`` if the pod requests nothing of
    Mooring.
    """

    remarks: Sequence[tuple[Place, str]]
    is_refused: bool = False
    is_for_others: bool = False


@dataclass(slots=True)
class _Requests:
    """What a pod requests of other systems: interfaces of its own, and what is to be removed or changed for them."""

    interfaces: list[dict[str, Any]] = field(default_factory=list)
    # Of these neither number nor networks are in the manifest.
    is_shared: bool = False
    remarks: list[tuple[Place, str]] = field(default_factory=list)


def advise(pod_place: PodPlace, networks: Networks, schedulers: Sequence[str]) -> Advice:
    """Return what to write in place of a pod's requests to other systems, and what to remove."""
    pod = pod_place.pod
    annotations = pod.at("metadata", "annotations").value
    keys = annotations.keys() if isinstance(annotations, dict) else set[str]()
    scheduler = pod.at("spec", "schedulerName").value
    limits = _limits(pod_place)
    ours = [name for name in limits if name in _OURS]
    has_annotation = not keys.isdisjoint((names.REQUEST, names.RIT_REQUEST))
    is_asking = has_annotation or bool(ours)
    requests = _Requests()
    _read_device_limits(limits, requests)
    _read_networks(pod_place, networks, requests, has_devices=bool(requests.remarks))
    _read_claims(pod, networks, requests)
    has_request = bool(requests.remarks)
    _read_host_devices(pod_place, requests, is_asking=is_asking)
    is_placed, wants_vfs = scheduler in schedulers, bool(requests.remarks)
    remarks = [*requests.remarks, *_two_gpus(limits)]
    if not (wants_vfs or is_asking or is_placed):
        remarks += _unknown_networks(pod_place, networks, schedulers)
    if ours and not is_placed and not has_annotation:
        remarks.append((limits[ours[0]][0], _needs_scheduler(schedulers)))
    elif wants_vfs and not is_asking:
        remarks += _host_network(pod)
        remarks.insert(0, (_annotations_place(pod), _line(requests, schedulers)))
    remarks += _device_names(pod_place)
    is_refused = (is_placed and has_request) or bool(ours and not is_placed)
    return Advice(remarks, is_refused, is_for_others=wants_vfs and not is_asking)


def requests_elsewhere(place: Place, field_name: str = "") -> Iterator[tuple[Place, str]]:
    """Yield the requests in an object whose pods are not found; ``field_name`` is that of the value."""
    if not field_name and place.at("kind").value in _NETWORK_KINDS:
        return
    if isinstance(place.value, list | dict):
        steps = place.value if isinstance(place.value, dict) else map(str, range(len(place.value)))
        for step in steps:
            is_request = field_name in ("limits", "requests") and _is_device(step)
            if is_request or (field_name == "annotations" and step in _ATTACHING):
                yield (
                    place.at(step),
                    f"requests RDMA of another program. Find where {names.REQUEST} and schedulerName of this kind's"
                    " pods are, and write them there",
                )
            else:
                yield from requests_elsewhere(place.at(step), field_name if step == "custom" else step)


def _is_device(resource: str) -> bool:
    return resource not in _OURS and not _GPU.fullmatch(resource) and _NETWORK.fullmatch(resource) is not None


def _needs_scheduler(schedulers: Sequence[str]) -> str:
    return f"requests devices of Mooring: write schedulerName: {' or '.join(schedulers)}"


def _annotations_place(pod: Place) -> Place:
    """Return the place of a pod's annotations; of a spec without a template or metadata, the spec."""
    is_bare = pod.renamed == {"spec": ""} and pod.at("metadata").value is None
    return pod.at("spec") if is_bare else pod.at("metadata", "annotations")


def _line(requests: _Requests, schedulers: Sequence[str]) -> str:
    interfaces = json.dumps(requests.interfaces or [{}])
    number = "" if requests.interfaces else ", with one entry for each NIC that the pod uses,"
    return (
        f"nothing requests VFs of Mooring. Write {names.REQUEST}: {interfaces!r}{number} and in spec schedulerName:"
        f" {schedulers[0]}. A network has the name that your nodes' offers give it"
    )


def _limits(pod_place: PodPlace) -> dict[str, tuple[Place, int]]:
    """Return the extended resources of all containers, each with its first place and its sum."""
    found: dict[str, tuple[Place, int]] = {}
    for container in _containers(pod_place):
        resources = container.at("resources")
        both = [resources.at("limits"), resources.at("requests")]
        # A Dynamo service has extended resources below `custom`.
        maps = [place for amounts in both for place in (amounts.at("custom"), amounts) if isinstance(place.value, dict)]
        seen = set[str]()
        for amounts in maps:
            for name, amount in amounts.value.items():
                if "/" in name and name not in seen and str(amount) != "0":
                    seen.add(name)
                    place, before = found.get(name, (amounts.at(name), 0))
                    found[name] = place, before + (int(amount) if str(amount).isdecimal() else 1)
    return found


def _containers(pod_place: PodPlace) -> Iterator[Place]:
    spec = pod_place.pod.at("spec")
    for kind in ("initContainers", "containers"):
        several = spec.at(kind)
        for index in range(len(several.value) if isinstance(several.value, list) else 0):
            yield several.at(str(index))
    if pod_place.pod.renamed:
        # Of Dynamo, of Argo's workflows and of KServe's models.
        yield from (spec.at(kind) for kind in ("mainContainer", "container", "script", "model"))
        # Of a Dynamo service the resources are beside its pod.
        yield pod_place.pod


def _read_device_limits(limits: Mapping[str, tuple[Place, int]], requests: _Requests) -> None:
    for name, (place, count) in limits.items():
        if not _is_device(name):
            continue
        if name.startswith(_SHARED):
            requests.is_shared = True
            rule = (
                "a device plugin shares the host's RDMA devices among pods, and Mooring gives each pod its own VFs:"
                " remove it"
            )
        else:
            count = -(-count // 100) if name == _HUNDREDTHS else count
            requests.interfaces += [{} for _ in range(count)]
            devices = "a device" if count == 1 else f"{count} devices"
            rule = f"a device plugin gives the pod {devices}, which the kubelet chooses after scheduling: remove it"
        requests.remarks.append((place, rule))


def _attachments(pod_place: PodPlace) -> dict[str, Place]:
    """Return the annotations by which other programs attach networks; KServe's are the object's own, too."""
    sources = [pod_place.pod.at("metadata", "annotations")]
    if pod_place.pod.renamed.get("metadata") == "":
        sources.append(pod_place.whole.at("metadata", "annotations"))
    found = {
        key: source.at(key) for source in reversed(sources) for key in _ATTACHING if source.at(key).value is not None
    }
    return {key: found[key] for key in _ATTACHING if key in found}


def _unknown_networks(
    pod_place: PodPlace, networks: Networks, schedulers: Sequence[str]
) -> Iterator[tuple[Place, str]]:
    """Yield what to write for Multus' networks that the manifests do not define.

    Their devices are often not in the pod: network-resources-injector adds the limits.
    """
    for key, place in _attachments(pod_place).items():
        entries = [entry for entry in networks.of_multus(place.value) if entry.name not in networks.others]
        if key in (_MULTUS, _DEFAULT_NETWORK) and entries:
            line = json.dumps([entry.interface for entry in entries])
            yield (
                place,
                f"another program attaches these networks. For those on VFs write {names.REQUEST}: {line!r} and in spec"
                f" schedulerName: {schedulers[0]} instead",
            )


def _read_networks(pod_place: PodPlace, networks: Networks, requests: _Requests, *, has_devices: bool) -> None:
    places = _attachments(pod_place)
    texts = {key: place.value for key, place in places.items()}
    entries = networks.of_multus(texts.get(_MULTUS)) + networks.of_gke(texts.get(_GKE))
    # Of more networks than devices the others need none: a bond's own attachment, or a bridge.
    count = len(requests.interfaces) if requests.interfaces and not requests.is_shared else len(entries)
    entries, others = entries[:count], entries[count:]
    if entries:
        requests.interfaces = [entry.interface for entry in entries]
        requests.is_shared = False
    for key, place in places.items():
        is_of_multus = key in (_MULTUS, _DEFAULT_NETWORK)
        if has_devices or not is_of_multus or networks.are_on_vfs(entries):
            rest = f", but leave {', '.join(entry.name for entry in others)}" if others and key == _MULTUS else ""
            addresses = any(entry.has_addresses for entry in entries)
            ipam = ". Addresses come from the network's ipam in /etc/mooring/cni.json" if addresses else ""
            rule = "another program attaches these networks. Remove those that are on VFs"
            requests.remarks.append((place, f"{rule}{rest}{ipam}"))


def _read_claims(pod: Place, networks: Networks, requests: _Requests) -> None:
    claims = pod.at("spec", "resourceClaims")
    for index in range(len(claims.value) if isinstance(claims.value, list) else 0):
        claim = claims.at(str(index))
        name = claim.at("resourceClaimTemplateName").value or claim.at("resourceClaimName").value
        if (devices := networks.claims.get(str(name))) is not None:
            requests.interfaces += [{} for _ in range(devices.count or 0)]
            number = "all" if devices.count is None else devices.count
            rule = f"claims {number} devices of class {devices.device_class!r}: remove the claim"
            requests.remarks.append((claim, f"{rule}, and where containers name it"))
        elif is_nic(str(name)) and name not in networks.other_claims:
            rule = "claims devices that the files do not define. If they are NICs, remove the claim"
            requests.remarks.append((claim, f"{rule}, and where containers name it"))


def _read_host_devices(pod_place: PodPlace, requests: _Requests, *, is_asking: bool) -> None:
    volumes = pod_place.pod.at("spec", "volumes")
    for index in range(len(volumes.value) if isinstance(volumes.value, list) else 0):
        path = volumes.at(str(index)).at("hostPath", "path")
        parts = path.value.rstrip("/").split("/") if isinstance(path.value, str) else []
        if parts == ["", "dev"] or parts[:3] == ["", "dev", "infiniband"]:
            what = "every RDMA device" if len(parts) < 4 else "an RDMA device"
            requests.remarks.append((path, f"shows {what} of the host: remove volume and mounts"))
    if not requests.remarks and not is_asking:
        return
    for container in _containers(pod_place):
        privileged = container.at("securityContext", "privileged")
        if privileged.value is True:
            rule = "a privileged container opens every device of the host, other pods' VFs too. RDMA does not need it"
            requests.remarks.append((privileged, rule))


def _host_network(pod: Place) -> Iterator[tuple[Place, str]]:
    spec = pod.at("spec")
    if spec.at("hostNetwork").value is True:
        yield (
            spec.at("hostNetwork"),
            "a pod with VFs has a network of its own: remove it. Its interfaces are eth0 and net1, net2, …, or as"
            " 'name' says",
        )
        if spec.at("dnsPolicy").value == "ClusterFirstWithHostNet":
            yield spec.at("dnsPolicy"), "is for the host's network: remove it"


def _device_names(pod_place: PodPlace) -> Iterator[tuple[Place, str]]:
    """Yield where RDMA devices are named by hand, in variables and in arguments."""
    for container in _containers(pod_place):
        variables = container.at("env")
        for index in range(len(variables.value) if isinstance(variables.value, list) else 0):
            variable = variables.at(str(index))
            name, value = variable.at("name").value, variable.at("value").value
            if isinstance(name, str) and (name.startswith(_DEVICE_VARIABLES) or _DEVICE_NAME.search(str(value))):
                yield variable, f"{name} names devices by hand, and every pod has others. {_instead(name)}"
        for kind in ("command", "args"):
            words = container.at(kind)
            for index, word in enumerate(words.value if isinstance(words.value, list) else ()):
                if isinstance(word, str) and (_DEVICE_NAME.search(word) or _SETS_DEVICES.search(word)):
                    yield (
                        words.at(str(index)),
                        "names devices by hand, and every pod has others. Let a shell read MOORING_RDMA_DEVICES",
                    )


def _instead(variable: str) -> str:
    if variable in _SET_VARIABLES:
        return "Remove it: Mooring sets it to the pod's own"
    if variable == "NVSHMEM_HCA_PE_MAPPING":
        return "Remove it: Mooring sets NVSHMEM_HCA_LIST to the pod's own"
    return "Read MOORING_DEVICES instead"


def _two_gpus(limits: Mapping[str, tuple[Place, int]]) -> Iterator[tuple[Place, str]]:
    for name, (place, _) in limits.items():
        if GPU in limits and name != GPU and _GPU.fullmatch(name):
            yield place, f"a device plugin would give GPUs beside those of {GPU!r}: remove it"
