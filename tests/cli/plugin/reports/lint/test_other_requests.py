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
    """Claims of GPUs do not, nor claims whose template is not in the files."""
    exactly = {"deviceClassName": "dranet", "count": 2}
    requests = {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}
    nic = {"kind": "ResourceClaimTemplate", "metadata": {"name": "nic"}, "spec": {"spec": requests}}
    gpu_requests = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    gpu = {"kind": "ResourceClaim", "metadata": {"name": "gpu"}, "spec": gpu_requests}
    claims = [{"name": "n", "resourceClaimTemplateName": "nic"}, {"name": "g", "resourceClaimName": "gpu"}]
    read = _lint(nic, gpu, _pod(spec={"resourceClaims": claims}))
    assert _written(read["notes"]) == [{}, {}]
    assert len(read["notes"]) == 2


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
