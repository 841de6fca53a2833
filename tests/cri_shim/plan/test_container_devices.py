"""Which containers lack devices, from what the runtime says of them."""

import json
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as full

from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.container_devices import UnreadableSpecError, device_numbers, grace_s, missing_devices
from cri_shim.plan.inject import entitled_vfs
from mooring.annotations.assignment import read_assignment

# As containerd 1.6 writes them: other devices of the container, and one that is none of a VF.
DEVICES = [
    {"path": "/dev/infiniband/rdma_cm", "type": "c", "major": 10, "minor": 124, "fileMode": 438, "uid": 0, "gid": 0},
    {"path": "/dev/infiniband/uverbs3", "type": "c", "major": 231, "minor": 195, "fileMode": 438, "uid": 0, "gid": 0},
    {"path": "/dev/vda", "type": "b", "major": 231, "minor": 196, "fileMode": 432},
]
RULES = {"devices": [{"allow": True, "type": "c", "major": 231, "minor": 196, "access": "rwm"}]}


def answer(info: str) -> Any:
    """A runtime's answer, by the independent stubs."""
    whole = full.ContainerStatusResponse(status=full.ContainerStatus(id="c1"), info={"info": info, "other": "{}"})
    return cri.ContainerStatusResponse.FromString(whole.SerializeToString())


def spec(**linux: Any) -> str:
    return json.dumps({"sandboxID": "s", "pid": 7, "runtimeSpec": {"ociVersion": "1.0.2", "linux": linux}})


def test_a_containers_character_devices_are_read_from_its_spec() -> None:
    """Neither block devices nor the rules of its device cgroup."""
    assert device_numbers(answer(spec(devices=DEVICES, resources=RULES))) == {"10:124", "231:195"}
    for none in (spec(), spec(devices=None), spec(devices=[])):
        assert device_numbers(answer(none)) == frozenset()


@pytest.mark.parametrize(
    "info",
    [
        *("", "{", "null", "[]", '{"runtimeSpec":null}', '{"runtimeSpec":{}}', '{"runtimeSpec":{"linux":[]}}'),
        *(spec(devices=[{}]), spec(devices=[1]), spec(devices={"a": 1}), spec(devices=[{"type": 1}])),
        '{"runtimeSpec":{"linux":' + "[" * 100_000,
        " " * (8 << 20) + spec(devices=DEVICES),
    ],
)
def test_what_is_not_a_spec_tells_nothing(info: str) -> None:
    """Such a container is counted as not checked, and never stopped."""
    with pytest.raises(UnreadableSpecError):
        device_numbers(answer(info))


def test_a_container_lacks_each_function_whose_device_it_was_not_made_with(make: Any) -> None:
    """By number: a VF whose driver was bound again has another device than the container."""
    assignment = read_assignment(json.dumps(make.assignment))
    both = entitled_vfs(assignment, "trainer")
    numbers = {make.first: "231:195", make.second: "231:196"}
    assert [vf.pci for vf in both] == list(numbers)
    assert missing_devices(numbers, {"231:195", "231:196", "10:124"}) == ()
    assert missing_devices(numbers, {"231:195"}) == (make.second,)
    assert missing_devices(numbers, ()) == (make.first, make.second)
    assert [vf.pci for vf in entitled_vfs(assignment, "sidecar")] == [make.first]


@pytest.mark.parametrize(
    ("noted", "granted"), [("5", 5), ("0", 0), ("86400", 600), ("", 30), ("-1", 30), ("x", 30), ("9" * 5000, 30)]
)
def test_a_container_gets_the_time_that_its_pod_grants(noted: str, granted: int) -> None:
    """As the kubelet notes it on the container; without a note Kubernetes' own default."""
    annotations = {"io.kubernetes.pod.terminationGracePeriod": noted.encode()} if noted else {}
    assert grace_s(cri.Container(annotations=annotations)) == granted
