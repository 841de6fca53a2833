"""What is decided about a pod's two requests, and what a container's request becomes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as full
from hypothesis import given, settings
from hypothesis import strategies as st

from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import (
    Addition,
    Inject,
    Pass,
    Record,
    Refuse,
    Rules,
    VfDevices,
    add_to_container,
    decide_container,
    decide_sandbox,
    devices,
    environment,
    ledger_mismatch,
)
from mooring.annotations.assignment import read_assignment
from mooring.records.ledger import Original
from mooring.records.pod_record import PodRecord

REQUEST, ASSIGNMENT = "mooring.dev/interfaces", "mooring.dev/assignment"
DEVICES = [
    VfDevices("mlx5_3", "uverbs3", ("/dev/infiniband/uverbs3", "/dev/infiniband/rdma_cm")),
    VfDevices("mlx5_4", "uverbs4", ("/dev/infiniband/uverbs4", "/dev/infiniband/rdma_cm")),
]


def sandbox(raw: bytes) -> cri.RunPodSandboxRequest:
    return cri.RunPodSandboxRequest.FromString(raw)


def container(raw: bytes) -> cri.CreateContainerRequest:
    return cri.CreateContainerRequest.FromString(raw)


def recorded(make: Any) -> PodRecord:
    return PodRecord("ml/web", read_assignment(make.annotations[ASSIGNMENT]))


def test_the_slice_of_cri_has_the_numbers_of_cri() -> None:
    """Every message and field of ours is one of CRI's, by name and number; its type may differ."""
    for name, ours in cri.DESCRIPTOR.message_types_by_name.items():
        theirs = getattr(full, name).DESCRIPTOR.fields_by_name
        numbers = {field.name: field.number for field in ours.fields}
        assert numbers == {field: theirs[field].number for field in numbers}


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"other": "x"},
        {REQUEST: "[]"},
        {"rdma_interfaces_required": "[]"},
        {"rdma_interfaces_required": "null"},
    ],
)
def test_a_pod_that_asks_for_nothing_is_passed(annotations: Mapping[str, str], make: Any, rules: Rules) -> None:
    """A pod without request and assignment, or with an empty request, passes, on the host's network and in a VM too."""
    request = sandbox(make.run(annotations, handler="kata", host_network=True))
    assert decide_sandbox(request, None, rules) == Pass()
    assert decide_container(container(make.create(annotations)), None, rules) == Pass()


def test_a_valid_assignment_is_recorded_under_the_pods_name(make: Any, rules: Rules) -> None:
    """The first sandbox of a pod fixes what the pod has."""
    assert decide_sandbox(sandbox(make.run(make.annotations)), None, rules) == Record(recorded(make))


def test_an_empty_assignment_is_recorded_and_its_containers_pass(make: Any, rules: Rules) -> None:
    """The CNI plugin wants a record wherever it sees an assignment."""
    annotations = make.annotations_with(vfs=[]) | {REQUEST: "[]"}
    decision = decide_sandbox(sandbox(make.run(annotations)), None, rules)
    assert isinstance(decision, Record)
    assert decision.record.assignment.vfs == ()
    assert decide_container(container(make.create(annotations)), decision.record, rules) == Pass()


REFUSALS = {
    "request without assignment": ({REQUEST: "[{}]"}, "scheduler 'mooring' did not bind it"),
    "malformed request": ({REQUEST: "[{"}, "annotation 'mooring.dev/interfaces': not valid JSON"),
    "malformed assignment": ({ASSIGNMENT: "{"}, "annotation 'mooring.dev/assignment': not valid JSON"),
    "rit-k8s-rdma's request alone": (
        {"rdma_interfaces_required": '[{"min_tx_rate":1}]'},
        "requests 1 VFs",
    ),
}


@pytest.mark.parametrize(("annotations", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_not_valid_is_refused_in_words(
    annotations: Mapping[str, str], reason: str, make: Any, rules: Rules
) -> None:
    """Closed, always, at both calls, with the annotation and the rule."""
    for decision in (
        decide_sandbox(sandbox(make.run(annotations)), None, rules),
        decide_container(container(make.create(annotations)), None, rules),
    ):
        assert isinstance(decision, Refuse)
        assert reason in decision.reason


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"uid": "another"}, "'another' is not this pod's uid"),
        ({"node": "n2"}, "'n2' is not this pod's node 'n1'"),
        ({"v": 2}, "v"),
        ({"extra": 1}, "unknown field"),
    ],
)
def test_an_assignment_that_is_not_this_pods_is_refused(
    replaced: Mapping[str, Any], reason: str, make: Any, rules: Rules
) -> None:
    """The uid and the node must be these, and every field one that is known."""
    decision = decide_sandbox(sandbox(make.run(make.annotations_with(**replaced))), None, rules)
    assert isinstance(decision, Refuse)
    assert reason in decision.reason


@pytest.mark.parametrize("later", ["[{}]", "[]", "[", '[{"min_tx_rate":1},{"vlan":7}]'])
def test_a_request_edited_after_the_decision_changes_nothing(later: str, make: Any, rules: Rules) -> None:
    """Also before the pod's first run: no scheduler could decide about it again, so it would be refused for ever."""
    edited = make.annotations | {REQUEST: later}
    assert decide_sandbox(sandbox(make.run(edited)), None, rules) == Record(recorded(make))


def test_once_recorded_another_assignment_is_refused(make: Any, rules: Rules) -> None:
    """The sandbox and the container are refused whatever the annotation has later."""
    other = make.annotations_with(vfs=[make.assignment["vfs"][0] | {"vf": 9}, make.assignment["vfs"][1]])
    for decision in (
        decide_sandbox(sandbox(make.run(other)), recorded(make), rules),
        decide_container(container(make.create(other)), recorded(make), rules),
    ):
        assert isinstance(decision, Refuse)
        assert "differs from the assignment recorded" in decision.reason


@pytest.mark.parametrize("later", [{REQUEST: "[{},{},{}]"}, {REQUEST: "["}, {}])
def test_once_recorded_a_request_edited_later_changes_nothing(
    later: Mapping[str, str], make: Any, rules: Rules
) -> None:
    """The request as it was at the decision counts; the record holds even where the annotations are gone."""
    annotations = {ASSIGNMENT: make.annotations[ASSIGNMENT], **later} if later else {}
    assert decide_sandbox(sandbox(make.run(annotations)), recorded(make), rules) == Pass()
    assert isinstance(decide_container(container(make.create(annotations)), recorded(make), rules), Inject)


def test_a_record_of_another_node_is_refused(make: Any) -> None:
    """A node that was renamed does not apply what was decided for its old name."""
    decision = decide_sandbox(sandbox(make.run()), recorded(make), Rules("n2"))
    assert isinstance(decision, Refuse)
    assert "'n1'" in decision.reason


def test_host_network_with_vfs_is_refused(make: Any, rules: Rules) -> None:
    """The pod has no network namespace that the VFs could move to."""
    decision = decide_sandbox(sandbox(make.run(make.annotations, host_network=True)), None, rules)
    assert isinstance(decision, Refuse)
    assert "hostNetwork" in decision.reason


@pytest.mark.parametrize(("handler", "accepted"), [("", True), ("runc", True), ("kata", False)])
def test_only_listed_runtime_handlers_get_vfs(handler: str, accepted: bool, make: Any, rules: Rules) -> None:
    """The kernel of a VM sees neither the netdev nor the device nodes."""
    decision = decide_sandbox(sandbox(make.run(make.annotations, handler=handler)), None, rules)
    assert isinstance(decision, Record) is accepted


def test_containers_get_the_devices_of_the_vfs_that_name_them(make: Any, rules: Rules) -> None:
    """A VF without containers belongs to all; any other only to those named. The ledger is read for all of them."""
    for name, vfs in (("trainer", [make.first, make.second]), ("sidecar", [make.first])):
        decision = decide_container(container(make.create(make.annotations, name)), recorded(make), rules)
        assert isinstance(decision, Inject)
        assert [vf.pci for vf in decision.vfs] == vfs
        assert len(decision.assignment.vfs) == 2


def test_a_container_of_a_sandbox_that_went_past_the_shim_is_refused(make: Any, rules: Rules) -> None:
    """A valid assignment without a record: RunPodSandbox did not check it."""
    decision = decide_container(container(make.create(make.annotations)), None, rules)
    assert decision == Refuse("no pod record: the pod's sandbox was not created through mooring-cri-shim")


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        (None, "is not in the ledger"),
        ({"phase": "taking"}, "'taking'"),
        ({"phase": "returning"}, "'returning'"),
        ({"container": "other"}, "held by sandbox 'other'"),
        ({"uid": "other"}, "held by pod 'other'"),
    ],
)
def test_the_ledger_must_show_every_vf_held_by_this_sandbox(
    replaced: Mapping[str, Any] | None, reason: str, make: Any
) -> None:
    """If one VF is not, the CNI plugin was bypassed, or the VF is not free yet."""
    assignment = recorded(make).assignment
    good = {pci: make.entry(pci) for pci in (make.first, make.second)}
    assert ledger_mismatch(assignment, make.sandbox, good) is None
    bad = {**good, make.second: None if replaced is None else make.entry(make.second, **replaced)}
    assert reason in (ledger_mismatch(assignment, make.sandbox, bad) or "")


def test_the_environment_names_the_vfs_and_their_rdma_devices_exactly(make: Any) -> None:
    """MOORING_DEVICES describes them; NCCL takes the names after "=" exactly."""
    vf = recorded(make).assignment.vfs[0]
    variables = environment([(vf, make.entry(make.first), DEVICES[0]), (vf, make.entry(make.first), DEVICES[1])])
    described = json.loads(variables["MOORING_DEVICES"])
    assert described[0] == {
        "name": "net1",
        "pci": make.first,
        "network": "rail0",
        "rdma": "mlx5_3",
        "uverbs": "uverbs3",
        "ips": ["10.0.0.2/24"],
    }
    del variables["MOORING_DEVICES"]
    assert variables == {
        "MOORING_RDMA_DEVICES": "mlx5_3,mlx5_4",
        "NCCL_IB_HCA": "=mlx5_3,mlx5_4",
        "UCX_NET_DEVICES": "mlx5_3:1,mlx5_4:1",
        "NVSHMEM_HCA_LIST": "mlx5_3:1,mlx5_4:1",
        "MOONCAKE_DEVICE": "mlx5_3,mlx5_4",
        "MORI_RDMA_DEVICES": "mlx5_3,mlx5_4",
    }


@pytest.mark.parametrize("entry", [{"original": Original()}, {"rdma_only": True}])
def test_a_vf_without_a_network_interface_has_no_name(entry: dict[str, Any], make: Any) -> None:
    """An InfiniBand VF on a host without ib_ipoib, or requested without it: the container gets its RDMA device."""
    vf = recorded(make).assignment.vfs[0]
    variables = environment([(vf, make.entry(make.first, **entry, addresses=()), DEVICES[0])])
    (described,) = json.loads(variables["MOORING_DEVICES"])
    assert (described["name"], described["rdma"], described["ips"]) == (None, "mlx5_3", [])
    assert variables["NCCL_IB_HCA"] == "=mlx5_3"


def test_a_name_that_cannot_be_told_leaves_nccl_all_that_the_container_has(make: Any) -> None:
    """With the other names alone it would not use the VF."""
    vf = recorded(make).assignment.vfs[0]
    renamed = VfDevices(None, "uverbs4", DEVICES[1].nodes)
    variables = environment([(vf, make.entry(make.first), DEVICES[0]), (vf, make.entry(make.first), renamed)])
    described = json.loads(variables["MOORING_DEVICES"])
    assert [(one["rdma"], one["uverbs"]) for one in described] == [("mlx5_3", "uverbs3"), (None, "uverbs4")]
    assert variables.keys() == {"MOORING_DEVICES"}


def seen_by_the_runtime(raw: bytes) -> Any:
    return full.CreateContainerRequest.FromString(raw)


def test_devices_are_appended_and_the_original_bytes_kept(make: Any) -> None:
    """Where nothing is replaced the request is a prefix of what is forwarded; shared nodes appear once."""
    raw = make.create(make.annotations)
    result = add_to_container(raw, container(raw), Addition(devices(DEVICES), {"A": "1"}))
    assert result.startswith(raw)
    found = [(d.container_path, d.host_path, d.permissions) for d in seen_by_the_runtime(result).config.devices]
    paths = [f"/dev/infiniband/{name}" for name in ("uverbs3", "rdma_cm", "uverbs4")]
    assert found == [(path, path, "rw") for path in paths]


@pytest.mark.parametrize("taken", ["/dev/infiniband/uverbs3", "/dev/infiniband", "/dev/infiniband/../infiniband/"])
def test_a_device_in_the_same_place_is_replaced(taken: str, make: Any) -> None:
    """Devices are compared by container path and added once: a whole folder would hold other pods' devices."""
    raw = make.create(
        make.annotations,
        devices=[
            full.Device(container_path=taken, host_path="/dev/infiniband", permissions="mrw"),
            full.Device(container_path="/dev/fuse", host_path="/dev/fuse", permissions="rw"),
        ],
    )
    result = seen_by_the_runtime(add_to_container(raw, container(raw), Addition(devices(DEVICES[:1]))))
    assert [d.container_path for d in result.config.devices] == [
        "/dev/fuse",
        "/dev/infiniband/uverbs3",
        "/dev/infiniband/rdma_cm",
    ]


def test_a_variable_that_the_user_set_is_left_alone(make: Any) -> None:
    """This includes values that are not text: a Secret's bytes, as Go's CRI lets them through."""
    raw = make.create(make.annotations, envs=[full.KeyValue(key="A", value="mine")]).replace(b"mine", b"\xff\xfe\x00m")
    result = add_to_container(raw, container(raw), Addition(variables={"A": "ours", "B": "ours"}))
    envs = {variable.key: variable.value for variable in container(result).config.envs}
    assert envs == {"A": b"\xff\xfe\x00m", "B": b"ours"}


TEXT = st.text(max_size=8)
CONFIGS = st.builds(
    full.ContainerConfig,
    metadata=st.builds(full.ContainerMetadata, name=TEXT, attempt=st.integers(0, 9)),
    args=st.lists(TEXT, max_size=3),
    working_dir=TEXT,
    envs=st.lists(st.builds(full.KeyValue, key=TEXT | st.just("FORCED"), value=TEXT), max_size=3),
    CDI_devices=st.lists(st.builds(full.CDIDevice, name=st.sampled_from(["a.com/b=0", "a.com/b=1"])), max_size=1),
    mounts=st.lists(st.builds(full.Mount, container_path=TEXT, host_path=TEXT, readonly=st.booleans()), max_size=2),
    devices=st.lists(
        st.builds(
            full.Device,
            container_path=st.sampled_from(["/dev/fuse", "/dev/infiniband/uverbs3", "/dev/infiniband"]) | TEXT,
            host_path=TEXT,
            permissions=st.sampled_from(["r", "rw", "mrw"]),
        ),
        max_size=3,
    ),
    labels=st.dictionaries(TEXT, TEXT, max_size=2),
    annotations=st.dictionaries(TEXT, TEXT, max_size=2),
    tty=st.booleans(),
    stop_signal=st.integers(0, 30),
)


@settings(max_examples=500)
@given(
    CONFIGS,
    st.sampled_from([DEVICES, DEVICES[:1], []]),
    st.dictionaries(TEXT, TEXT, max_size=2),
    st.booleans(),
    st.sampled_from([(), ("a.com/b=0",), ("a.com/b=0", "a.com/b=2")]),
)
def test_whatever_a_request_holds_survives(
    config: Any, given: list[VfDevices], variables: dict[str, str], forced: bool, cdi: tuple[str, ...]
) -> None:
    """The runtime decodes what the kubelet wrote, plus our devices and variables; a forced one is there once."""
    original = full.CreateContainerRequest(pod_sandbox_id="s", config=config)
    raw = original.SerializeToString()
    addition = Addition(devices(given), variables, {"FORCED": "1"} if forced else {}, cdi)
    result = seen_by_the_runtime(add_to_container(raw, container(raw), addition))
    ours = [f"/dev/infiniband/{name}" for name in dict.fromkeys(n.rpartition("/")[2] for v in given for n in v.nodes)]
    placed = [device.container_path for device in result.config.devices]
    assert placed[len(placed) - len(ours) :] == ours
    assert all(placed.count(path) == 1 for path in ours)
    present = {variable.key for variable in config.envs}
    for key, value in variables.items():
        if key not in present:
            original.config.envs.add(key=key, value=value)
    if forced:
        kept = [variable for variable in original.config.envs if variable.key != "FORCED"]
        del original.config.envs[:]
        original.config.envs.extend([*kept, full.KeyValue(key="FORCED", value="1")])
    names = [device.name for device in original.config.CDI_devices]
    original.config.CDI_devices.extend(full.CDIDevice(name=name) for name in cdi if name not in names)
    del original.config.devices[:]
    del result.config.devices[:]
    assert result == original
