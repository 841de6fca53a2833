"""What `kubectl mooring lint` says of manifests that request RDMA from other programs."""

import json
from typing import Any

import pytest

from cli.plugin.reports.lint.report import report

Json = dict[str, Any]
MULTUS = "k8s.v1.cni.cncf.io/networks"


def _pod(limits: Json | None = None, annotations: Json | None = None, *, spec: Json | None = None, **more: Any) -> Json:
    container = {"name": "c", "resources": {"limits": limits or {}}} | more
    metadata = {"name": "a", "annotations": annotations or {}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]} | (spec or {})}


def _lint(*objects: Json) -> Json:
    text = "\n---\n".join(json.dumps(one) for one in objects)
    document: Json = json.loads(json.dumps(report([("f.yaml", text)], ("mooring",)).document))
    return document


def _written(notes: list[str]) -> Any:
    """Return the request that the notes propose."""
    (line,) = [note for note in notes if "Write mooring.dev/interfaces: '" in note] or [""]
    return json.loads(line.partition("interfaces: '")[2].partition("'")[0]) if line else None


@pytest.mark.parametrize(
    ("limits", "networks", "interfaces"),
    [
        # sriov-network-device-plugin and Multus, both of its forms.
        ({"nvidia.com/hostdev": "1"}, "hostdev-net", [{"network": "hostdev-net"}]),
        (
            {"openshift.io/eno5": 1, "openshift.io/eno6": 1},
            "a, ns/b@rdma1",
            [{"network": "a"}, {"network": "b", "name": "rdma1"}],
        ),
        (
            {"nvidia.com/mlnxnics": "1"},
            '[{"name": "ib-a", "infiniband-guid": "02:00:00:00:00:00:00:09"}]',
            [{"network": "ib-a", "guid": "02:00:00:00:00:00:00:09"}],
        ),
        # A bond over two VFs is a network without a device.
        (
            {"intel.com/sriov_netdevice": "2"},
            "vf@net1,vf@net2,bond",
            [{"network": "vf", "name": "net1"}, {"network": "vf", "name": "net2"}],
        ),
        # Cloud providers' own resources, which come with a network or without one.
        ({"vke.volcengine.com/rdma": "4"}, None, [{}] * 4),
        ({"amd.com/vnic": 2}, None, [{}] * 2),
        ({"koordinator.sh/rdma": "200"}, None, [{}] * 2),
        # A share of the host's devices says nothing about their number.
        ({"rdma/hca_shared_devices_a": 1}, None, [{}]),
        ({"rdma/ib": 1}, "s0-macvlan,s1-macvlan", [{"network": "s0-macvlan"}, {"network": "s1-macvlan"}]),
    ],
)
def test_limits_and_networks_become_interfaces(limits: Json, networks: str | None, interfaces: list[Json]) -> None:
    """Each limit and the annotation are named too, so that nobody leaves one."""
    read = _lint(_pod(limits, {MULTUS: networks} if networks else {}))
    assert _written(read["notes"]) == interfaces
    for name in (*limits, *([MULTUS] if networks else [])):
        assert any(f"{name}: " in note for note in read["notes"]), name
    assert (read["ok"], read["findings"]) == (True, [])


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": 8}, {"amd.com/gpu": 8}, {"nvidia.com/mig-1g.5gb": 1}, {"cpu": 1}]
)
def test_gpus_and_native_resources_are_no_network(limits: Json) -> None:
    assert _lint(_pod(limits))["notes"] == []


def test_a_network_that_the_manifests_define_gives_its_settings() -> None:
    """VLAN, rates and trust of a SriovNetwork, and of a NetworkAttachmentDefinition of sriov-cni."""
    sriov = {"kind": "SriovNetwork", "metadata": {"name": "rail-a"}}
    sriov["spec"] = {"vlan": 120, "vlanQoS": 3, "maxTxRate": 20000, "minTxRate": 0, "spoofChk": "off", "trust": "on"}
    config = {"plugins": [{"type": "ib-sriov", "link_state": "enable", "vlan": "x"}, {"type": "tuning"}]}
    attachment = {
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "ib"},
        "spec": {"config": json.dumps(config)},
    }
    read = _lint(sriov, attachment, _pod({"nvidia.com/a": 1, "nvidia.com/b": 1}, {MULTUS: "rail-a,ib"}))
    rail = {"network": "rail-a", "vlan": 120, "qos": 3, "max_tx_rate": 20000, "spoofchk": False, "trust": True}
    assert _written(read["notes"]) == [rail, {"network": "ib", "link": "infiniband", "link_state": "enable"}]


@pytest.mark.parametrize("text", ["{", "[1]", "", "@", '[{"x": 1}]', "[[[", 5])
def test_networks_that_cannot_be_read_do_no_harm(text: object) -> None:
    assert _lint(_pod({"nvidia.com/a": 1}, {MULTUS: text}))["notes"]


def test_claims_of_network_devices_become_interfaces() -> None:
    """Claims of GPUs do not."""
    exactly = {"deviceClassName": "dranet", "count": 2}
    requests = {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}
    nic = {"kind": "ResourceClaimTemplate", "metadata": {"name": "nic"}, "spec": {"spec": requests}}
    gpu_requests = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    gpu = {"kind": "ResourceClaim", "metadata": {"name": "gpu"}, "spec": gpu_requests}
    claims = [{"name": "n", "resourceClaimTemplateName": "nic"}, {"name": "g", "resourceClaimName": "gpu"}]
    read = _lint(nic, gpu, _pod(spec={"resourceClaims": claims}))
    assert _written(read["notes"]) == [{}, {}]
    assert len(read["notes"]) == 2


@pytest.mark.parametrize(
    ("request_of_claim", "written", "says"),
    [
        (
            {"firstAvailable": [{"deviceClassName": "sriov", "count": 2}, {"deviceClassName": "x"}]},
            [{}, {}],
            "claims 2",
        ),
        ({"exactly": {"deviceClassName": "mrdma.google.com", "allocationMode": "All"}}, [{}], "claims all devices of"),
        (None, [{}], "claims devices that the files do not define"),
    ],
)
def test_claims_in_other_forms_are_read(request_of_claim: Json | None, written: list[Json], says: str) -> None:
    """A choice of devices, all NICs of the node, and a template that somebody else has applied."""
    pod = _pod(spec={"resourceClaims": [{"name": "n", "resourceClaimTemplateName": "rdma-nics"}]})
    spec = {"spec": {"devices": {"requests": [{"name": "nic", **(request_of_claim or {})}]}}}
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "rdma-nics"}, "spec": spec}
    notes = _lint(*([template] if request_of_claim else []), pod)["notes"]
    assert _written(notes) == written
    assert any(says in note for note in notes)
    assert any("one entry for each NIC" in note for note in notes) == (written == [{}])


def test_a_pod_in_the_hosts_network_with_the_hosts_devices_learns_what_changes() -> None:
    volumes = [{"name": "ib", "hostPath": {"path": "/dev/infiniband/"}}]
    spec = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet", "volumes": volumes}
    read = _lint(_pod(spec=spec, securityContext={"privileged": True}))
    fields = [note.split(": ")[2] for note in read["notes"]]
    assert fields == [
        "metadata.annotations",
        "spec.volumes[0].hostPath.path",
        "spec.containers[0].securityContext.privileged",
        "spec.hostNetwork",
        "spec.dnsPolicy",
    ]
    # Without a hint of RDMA these are nobody's business.
    assert _lint(_pod(spec={"hostNetwork": True}, securityContext={"privileged": True}))["notes"] == []


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"env": [{"name": "NCCL_IB_HCA", "value": "^=mlx5_0"}]}, "env[0]"),
        ({"env": [{"name": "UCX_NET_DEVICES", "value": "mlx5_0:1"}]}, "env[0]"),
        ({"env": [{"name": "NVSHMEM_HCA_PE_MAPPING", "value": "mlx5_bond_0:1:2"}]}, "env[0]"),
        ({"env": [{"name": "PCIDEVICE_NVIDIA_COM_RAIL0", "value": "x"}]}, "env[0]"),
        ({"env": [{"name": "MY_DEVICE", "value": "bnxt_re3"}]}, "env[0]"),
        ({"args": ["--disaggregation-ib-device", "mlx5_0,mlx5_1"]}, "args[1]"),
        ({"command": ["mpirun", "-x", "NCCL_IB_HCA=ibp"]}, "command[2]"),
    ],
)
def test_devices_that_are_named_by_hand_are_found(more: Json, place: str) -> None:
    """A launcher that requests no device may name some too: nothing is proposed to it."""
    (note,) = _lint(_pod(**more))["notes"]
    assert note.split(": ")[2] == f"spec.containers[0].{place}"


def test_variables_that_name_no_device_are_left_alone() -> None:
    env = [{"name": "NCCL_SOCKET_IFNAME", "value": "eth0"}, {"name": "NCCL_IB_TC", "value": "136"}, {"name": "A"}]
    assert _lint(_pod(env=env))["notes"] == []


@pytest.mark.parametrize(
    "pod",
    [
        # Only the scheduler's name was added, or the request beside what was there.
        _pod({"nvidia.com/rail0": "1"}, spec={"schedulerName": "mooring"}),
        _pod({"nvidia.com/rail0": "1"}, {"mooring.dev/interfaces": "[{}]"}, spec={"schedulerName": "mooring"}),
        _pod({"tencent.com/rdma": 1}),
    ],
)
def test_a_pod_that_is_translated_by_half_is_a_finding(pod: Json) -> None:
    """Mooring would place it without what it asks others for, or the admission policies would reject it."""
    read = _lint(pod)
    assert not read["ok"]
    limit = next(iter(pod["spec"]["containers"][0]["resources"]["limits"]))
    assert any(one["field"].endswith(limit) for one in read["findings"])


def test_gpus_of_two_systems_are_named() -> None:
    pod = _pod({"nvidia.com/gpu": 1, "mooring.dev/gpu": 1}, spec={"schedulerName": "mooring"})
    (note,) = _lint(pod)["notes"]
    assert "limits.nvidia.com/gpu: a device plugin would give GPUs beside those of 'mooring.dev/gpu'" in note


def test_the_result_says_how_many_pods_are_to_be_moved() -> None:
    answer = report([("f.yaml", json.dumps(_pod({"rdma/ib": 1})))], ("mooring",))
    (table,) = answer.tables
    assert table.empty == (
        "no problems found (pods and templates checked: 1), but 1 request RDMA of other programs and no VFs of Mooring"
    )


def test_extended_resources_of_a_dynamo_service_are_read() -> None:
    """They stand below `custom`, beside the service's pod."""
    resources = {"limits": {"gpu": "8", "custom": {"rdma/ib": "8"}}}
    service = {"resources": resources, "extraPodSpec": {"mainContainer": {"image": "x"}}}
    graph = {"kind": "DynamoGraphDeployment", "metadata": {"name": "g"}, "spec": {"services": {"p": service}}}
    assert any("spec.services.p.resources.limits.custom.rdma/ib: " in note for note in _lint(graph)["notes"])


_DEVICE = {"resources": {"limits": {"rdma/roce_gdr": 1}}}
_BARE = {"containers": [{"name": "main", **_DEVICE}]}


@pytest.mark.parametrize(
    ("kind", "spec", "annotations", "limit"),
    [
        ("LLMInferenceService", {"template": _BARE}, "spec.annotations", "spec.template.containers[0]"),
        (
            "LLMInferenceService",
            {"template": {}, "prefill": {"worker": _BARE}},
            "spec.prefill.annotations",
            "spec.prefill.worker.containers[0]",
        ),
        ("InferenceService", {"predictor": {"model": _DEVICE}}, "spec.predictor.annotations", "spec.predictor.model"),
        (
            "InferenceService",
            {"predictor": {"workerSpec": _BARE}},
            "spec.predictor.annotations",
            "spec.predictor.workerSpec.containers[0]",
        ),
        (
            "Workflow",
            {"templates": [{"metadata": {}, "container": _DEVICE}]},
            "spec.templates[0].metadata.annotations",
            "spec.templates[0].container",
        ),
        (
            "PodCliqueSet",
            {"template": {"cliques": [{"spec": {"podSpec": _BARE}}]}},
            "spec.template.cliques[0].annotations",
            "spec.template.cliques[0].spec.podSpec.containers[0]",
        ),
        ("Unheard", {"a": [{"b": _BARE}]}, "spec.a[0].b", "spec.a[0].b.containers[0]"),
        ("Unheard", {"b": {**_BARE, "annotations": {}}}, "spec.b.annotations", "spec.b.containers[0]"),
    ],
)
def test_a_pods_spec_without_a_template_is_read(kind: str, spec: Json, annotations: str, limit: str) -> None:
    """Its annotations are where the kind's controller takes them from."""
    found = _lint({"kind": kind, "metadata": {"name": "a"}, "spec": spec})
    assert any(f"{kind}/a: {annotations}: nothing requests VFs of Mooring" in note for note in found["notes"])
    assert any(f"{limit}.resources.limits.rdma/roce_gdr: " in note for note in found["notes"])


def test_the_networks_of_a_served_model_are_the_objects_own() -> None:
    """KServe gives Multus' annotation to the pods."""
    metadata = {"name": "a", "annotations": {MULTUS: "roce"}}
    notes = _lint({"kind": "LLMInferenceService", "metadata": metadata, "spec": {"template": _BARE}})["notes"]
    assert _written(notes) == [{"network": "roce"}]


@pytest.mark.parametrize(
    ("kind", "spec", "place"),
    [
        ("TrainJob", {"trainer": {"resourcesPerNode": {"limits": {"rdma/ib": 1}}}}, "resourcesPerNode.limits.rdma/ib"),
        ("SparkApplication", {"executor": {"annotations": {MULTUS: "a"}}}, f"spec.executor.annotations.{MULTUS}"),
    ],
)
def test_a_request_in_a_kind_without_pods_is_named(kind: str, spec: Json, place: str) -> None:
    found = _lint({"kind": kind, "metadata": {"name": "a"}, "spec": spec})
    assert any(f"{place}: requests RDMA of another program" in note for note in found["notes"])


def test_what_no_pod_requests_is_left_alone() -> None:
    """Quotas, capacities, and the networks' own objects."""
    quota = {"kind": "ResourceQuota", "spec": {"hard": {"requests.rdma/ib": 1}}}
    node = {"kind": "Node", "status": {"capacity": {"rdma/ib": 1}}}
    network = {"kind": "NetworkAttachmentDefinition", "metadata": {"annotations": {f"{MULTUS}-status": "[]"}}}
    spider = {"kind": "SpiderMultusConfig", "metadata": {"annotations": {"cni.spidernet.io/rdma-resource-inject": "a"}}}
    assert _lint(quota, node, network, spider)["notes"] == []


@pytest.mark.parametrize("key", [MULTUS, "v1.multus-cni.io/default-network"])
def test_a_network_that_the_manifests_do_not_define_may_be_on_vfs(key: str) -> None:
    """Its devices are not in the pod either where a webhook adds the limits."""
    pod = _pod(annotations={key: "ns/rail0@net1"})
    found = _lint(pod)
    assert (found["ok"], _written(found["notes"])) == (True, None)
    assert any('For those on VFs write mooring.dev/interfaces: \'[{"network": "rail0"' in n for n in found["notes"])
    bridge = {"kind": "NetworkAttachmentDefinition", "metadata": {"name": "rail0"}, "spec": {"config": '{"type":"b"}'}}
    assert _lint(bridge, pod)["notes"] == []
    ours = _pod(annotations={key: "rail0", "mooring.dev/interfaces": "[{}]"}, spec={"schedulerName": "mooring"})
    assert _lint(ours)["notes"] == []


def test_networks_that_a_webhook_adds_are_read() -> None:
    notes = _lint(_pod(annotations={"cni.spidernet.io/rdma-resource-inject": "gpu"}))["notes"]
    assert _written(notes) == [{}]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/dev/infiniband/", "shows every RDMA device"),
        ("/dev/infiniband/uverbs0", "shows an RDMA device"),
        ("/devices", ""),
    ],
)
def test_devices_of_the_host_in_a_volume_are_found(path: str, what: str) -> None:
    notes = _lint(_pod(spec={"volumes": [{"name": "v", "hostPath": {"path": path}}]}))["notes"]
    assert (any(what in note for note in notes), bool(notes)) == (bool(what), bool(what))
