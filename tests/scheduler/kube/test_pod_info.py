"""A pod is read once: what it needs, or in words why it cannot be placed."""

from typing import Any

import msgspec
import pytest

from scheduler.kube.host_ports import host_ports, pack_ports
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import read_pod_info
from tests.scheduler.conftest import MakePod
from tests.scheduler.group_life import pod_info_of


def _container(name: str = "c", cpu: str = "1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}} | fields


def _sidecar(cpu: str) -> dict[str, Any]:
    return _container("s", cpu, restartPolicy="Always")


def _spread(**fields: Any) -> dict[str, Any]:
    constraint = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields
    return {"topologySpreadConstraints": [constraint]}


def _term(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "a", "operator": operator, "values": list(values)}
    return {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}}


def _affinity(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _preferred(weight: int) -> dict[str, Any]:
    term = {"weight": weight, "podAffinityTerm": _term("Exists")}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _limited(name: str = "c", **limits: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits}}


def _refusal(pod: Pod) -> str:
    pod_info = read_pod_info(pod)
    return pod_info.reason if isinstance(pod_info, Refused) else ""


ONE = _container(cpu="1")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [ONE, _container("d", "500m")]}, 1500),
        ({"containers": [ONE], "initContainers": [_container("i", "3")]}, 3000),
        ({"containers": [ONE], "initContainers": [_sidecar("1"), _container("i", "3")]}, 4000),
        ({"containers": [_container(cpu="2")], "initContainers": [_container("i", "3"), _sidecar("2")]}, 4000),
        ({"containers": [ONE], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [ONE], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [_limited(cpu="2")]}, 2000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1000),
    ],
)
def test_a_pods_requests_are_those_of_its_peak(spec: dict[str, Any], expected: int, make_pod: MakePod) -> None:
    """Init containers one after the other, sidecars beside them, overhead on top; pod-level requests win."""
    assert pod_info_of(make_pod(spec=spec)).resources["cpu"] == expected


RIT, HUSTCAT = "rdma-sriov/dev-infiniband-mount", "tencent.com/rdma"
VF, MBPS = "rdma-sriov/vf", "rdma-sriov/mbps"
FAST = [{"min_tx_rate": 3000}, {"min_tx_rate": 2000}]
OTHER_COUNT = "the pod has {} interface(s), but its containers limit 'rdma-sriov/vf' to 1"
INVENTED = [f"example.com/{number}" for number in range(20_000)]
TWO_LIMITS = [_limited(name, **{VF: "1"}) for name in ("a", "b")]


def _limits(**limits: Any) -> dict[str, Any]:
    return {"spec": {"containers": [_limited(**limits)]}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"request": [{}], "spec": {"hostNetwork": True}}, "hostNetwork"),
        ({"annotations": {"mooring.dev/interfaces": "{"}}, "annotation 'mooring.dev/interfaces': not valid JSON"),
        ({"request": [{}], "annotations": {"rdma_interfaces_required": "[]"}}, "only one may be given"),
        ({"request": [{"containers": ["x"]}]}, "[0].containers: 'x' is not a container of this pod"),
        ({"spec": {"containers": [_container(cpu="lots")]}}, "'lots' is not a quantity"),
        ({"annotations": {"mooring.dev/assignment": "{}"}}, "written by the scheduler only"),
        ({"spec": {"resourceClaims": [{"name": "gpu"}]}}, "resource claims"),
        ({"spec": _spread(topologyKey="")}, "spread constraint: topologyKey is miss"),
        ({"spec": _spread(whenUnsatisfiable="X")}, "whenUnsatisfiable 'X' is neither"),
        ({"spec": _spread(maxSkew=0)}, "maxSkew 0 is not greater than 0"),
        ({"spec": _spread(minDomains=0)}, "minDomains 0 is not greater than 0"),
        ({"spec": _spread(nodeTaintsPolicy="X")}, "nodeTaintsPolicy 'X' is neither"),
        ({"spec": _preferred(0)}, "weight 0 is not from 1 to 100"),
        ({"spec": _preferred(101)}, "is not from 1 to 100"),
        ({"spec": _affinity("podAffinity", {})}, "pod affinity term: topologyKey is missing"),
        ({"spec": _affinity("podAntiAffinity", _term("Gt", "1"))}, "operator 'Gt' of key 'a' is unknown"),
        ({"spec": _affinity("podAntiAffinity", _term("In"))}, "operator 'In' of key 'a' needs values"),
        ({"spec": _affinity("podAntiAffinity", _term("Exists", "1"))}, "operator 'Exists' of key 'a' takes no"),
        # Each kind of resource is compared on every node, and so many requirements took 16 s at 2,000 nodes.
        (
            {"spec": {"containers": [_limited(**dict.fromkeys(INVENTED[:61], "1"))]}},
            "61 kinds of resource are requested; the limit is 60",
        ),
        ({"spec": {"nodeSelector": dict.fromkeys(INVENTED, "x")}}, "20000 node requirements exceed the limit of 1000"),
        # Pods without interfaces are scheduled like any other.
        ({"spec": {"hostNetwork": True}}, ""),
        ({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, ""),
        ({"spec": _spread(whenUnsatisfiable="ScheduleAnyway")}, ""),
        # A quota and an autoscaler count the limit, the scheduler the interfaces: where they differ, one is wrong.
        (_limits(**{VF: "2"}) | {"request": [{}, {}]}, ""),
        (_limits(**{VF: "1"}) | {"request": [{}, {}]}, OTHER_COUNT.format(2)),
        (_limits(**{VF: "1"}), OTHER_COUNT.format(0)),
        (_limits(**{VF: "0"}) | {"request": []}, ""),
        (_limits(**{VF: "2", HUSTCAT: "2"}), ""),
        (_limits(**{VF: "2", HUSTCAT: "1"}), "the pod has 1 interface(s), but its containers limit"),
        (_limits(**{MBPS: "5k"}) | {"request": [*FAST, {}]}, ""),
        (_limits(**{MBPS: "3000"}) | {"request": FAST}, "the pod's interfaces reserve 5000 Mb/s"),
        (_limits(**{MBPS: "1"}), "the pod's interfaces reserve 0 Mb/s"),
        (_limits(**{MBPS: "0"}) | {"request": [{}]}, ""),
        # The limits of all containers count together, as a quota counts them.
        ({"request": [{}, {}], "spec": {"containers": TWO_LIMITS}}, ""),
        ({"request": [{}], "spec": {"containers": TWO_LIMITS}}, "the pod has 1 interface(s)"),
        (_limits(**{HUSTCAT: "65"}), "'tencent.com/rdma': 65 VFs exceed the limit of 64"),
    ],
)
def test_an_unsupported_feature_is_refused_in_words(fields: dict[str, Any], reason: str, make_pod: MakePod) -> None:
    """Nothing that a pod requests is silently ignored."""
    refusal = _refusal(make_pod(**fields))
    assert reason in refusal
    assert bool(reason) == bool(refusal)


@pytest.mark.parametrize("spec", [{"priority": 1 << 31}, _spread(maxSkew=1 << 70), _preferred(-1 << 70)])
def test_integers_beyond_the_apis_make_a_pod_unreadable(spec: dict[str, Any], make_pod: MakePod) -> None:
    """They are refused where they are decoded, so that none reaches an array."""
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        make_pod(spec=spec)


TRAINER = [_limited("trainer", **{HUSTCAT: "2"}), {"name": "logger"}, _limited("loader", **{HUSTCAT: 1})]


@pytest.mark.parametrize(
    ("request_", "containers", "expected"),
    [
        pytest.param([{}], [{"name": "c"}], [None], id="all-containers-if-none-is-named"),
        pytest.param(
            [{}, {"containers": ["a"]}], [{"name": "a"}, _limited("b", **{RIT: "1"})], [("b",), ("a",)], id="rit"
        ),
        pytest.param(None, TRAINER, [("trainer",), ("trainer",), ("loader",)], id="as-many-as-hustcats-count"),
        pytest.param([{}], TRAINER, [None], id="a-request-before-hustcats-count"),
    ],
)
def test_devices_go_to_the_containers_that_ask_for_them(
    request_: object, containers: list[Any], expected: list[Any], make_pod: MakePod
) -> None:
    """By the resource of rit-k8s-rdma or hustcat's, or by the request itself; a count asks for plain VFs."""
    interfaces = pod_info_of(make_pod(request=request_, spec={"containers": containers})).interfaces
    assert [interface.containers for interface in interfaces] == expected
    assert all(interface.min_tx_rate == 0 for interface in interfaces)


def test_pods_that_request_different_numbers_of_vfs_have_different_shapes(make_pod: MakePod) -> None:
    """The sum of hustcat's resource, init containers included, is not the number of VFs that it requests."""
    first, second = _limited("first", **{HUSTCAT: 1}), _limited("second", **{HUSTCAT: 2})
    two = pod_info_of(make_pod(spec={"containers": [second]}))
    one = pod_info_of(make_pod(spec={"containers": [first], "initContainers": [second]}))
    assert two.resources == one.resources
    assert (len(two.interfaces), len(one.interfaces)) == (2, 1)
    assert two.shape != one.shape


def test_pods_of_equal_requests_share_amounts_and_ports_unless_they_are_long(make_pod: MakePod) -> None:
    """A cluster has a hundred thousand pods; what one with thousands of ports needs is not kept after it."""
    for port_count, expected in ((2, True), (4096, False)):
        ports = [{"hostPort": number, "protocol": "TCP"} for number in range(1, port_count + 1)]
        containers = [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}, "ports": ports}]
        first, second = (pod_info_of(make_pod(spec={"containers": containers})) for _ in range(2))
        assert first.resources == second.resources == {"cpu": 1500, "memory": 1 << 30}
        assert first.scored == second.scored == first.resources
        assert first.ports == second.ports == pack_ports(host_ports(first.pod.spec))
        are_shared = [getattr(first, name) is getattr(second, name) for name in ("resources", "scored", "ports")]
        assert are_shared == [expected] * 3


def test_a_pod_without_containers_is_read(make_pod: MakePod) -> None:
    """No API server takes one; it counts as nothing."""
    assert set(pod_info_of(make_pod(spec={"containers": None})).scored.values()) == {0}
