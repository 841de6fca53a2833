"""A pod is read once: what it needs, or in words why it cannot be placed."""

from typing import Any

import msgspec
import pytest

from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo, read_pod_info
from tests.scheduler.conftest import MakePod


def _container(name: str = "c", cpu: str = "1", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}} | fields


def _spread(**fields: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields


def _term(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "a", "operator": operator, "values": list(values)}
    return {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}}


def _affinity(kind: str, term: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _preferred(weight: int) -> dict[str, Any]:
    term = {"weight": weight, "podAffinityTerm": _term("Exists")}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [_container(cpu="1"), _container("d", "500m")]}, 1500),
        ({"containers": [_container(cpu="1")], "initContainers": [_container("i", "3")]}, 3000),
        (
            {
                "containers": [_container(cpu="1")],
                "initContainers": [_container("s", "1", restartPolicy="Always"), _container("i", "3")],
            },
            4000,
        ),
        (
            {
                "containers": [_container(cpu="2")],
                "initContainers": [_container("i", "3"), _container("s", "2", restartPolicy="Always")],
            },
            4000,
        ),
        ({"containers": [_container(cpu="1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [_container(cpu="1")], "resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, 1000),
    ],
)
def test_a_pods_requests_are_those_of_its_peak(spec: dict[str, Any], expected: int, make_pod: MakePod) -> None:
    """Init containers one after the other, sidecars beside them, overhead on top; pod-level requests win."""
    pod_info = read_pod_info(make_pod(spec=spec))
    assert isinstance(pod_info, PodInfo)
    assert pod_info.resources["cpu"] == expected


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
        ({"spec": {"topologySpreadConstraints": [_spread(topologyKey="")]}}, "spread constraint: topologyKey is miss"),
        ({"spec": {"topologySpreadConstraints": [_spread(whenUnsatisfiable="X")]}}, "whenUnsatisfiable 'X' is neither"),
        ({"spec": {"topologySpreadConstraints": [_spread(maxSkew=0)]}}, "maxSkew 0 is not greater than 0"),
        ({"spec": {"topologySpreadConstraints": [_spread(minDomains=0)]}}, "minDomains 0 is not greater than 0"),
        ({"spec": _preferred(0)}, "weight 0 is not from 1 to 100"),
        ({"spec": _preferred(101)}, "is not from 1 to 100"),
        ({"spec": {"topologySpreadConstraints": [_spread(nodeTaintsPolicy="X")]}}, "nodeTaintsPolicy 'X' is neither"),
        ({"spec": _affinity("podAffinity", {})}, "pod affinity term: topologyKey is missing"),
        ({"spec": _affinity("podAntiAffinity", _term("Gt", "1"))}, "operator 'Gt' of key 'a' is unknown"),
        ({"spec": _affinity("podAntiAffinity", _term("In"))}, "operator 'In' of key 'a' needs values"),
        ({"spec": _affinity("podAntiAffinity", _term("Exists", "1"))}, "operator 'Exists' of key 'a' takes no"),
    ],
)
def test_an_unsupported_feature_is_refused_in_words(fields: dict[str, Any], reason: str, make_pod: MakePod) -> None:
    """Nothing that a pod requests is silently ignored."""
    refusal = read_pod_info(make_pod(**fields))
    assert isinstance(refusal, Refused)
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "spec", [{"priority": 1 << 31}, {"topologySpreadConstraints": [_spread(maxSkew=1 << 70)]}, _preferred(-1 << 70)]
)
def test_integers_beyond_the_apis_make_a_pod_unreadable(spec: dict[str, Any], make_pod: MakePod) -> None:
    """They are refused where they are decoded, so that none reaches an array."""
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        make_pod(spec=spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": True},
        {"volumes": [{"name": "v", "emptyDir": {}}]},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "zone"}]},
    ],
)
def test_an_ordinary_pod_is_not_refused(spec: dict[str, Any], make_pod: MakePod) -> None:
    """Pods without interfaces are scheduled like any other."""
    assert isinstance(read_pod_info(make_pod(spec=spec)), PodInfo)


def test_devices_go_to_the_containers_with_the_resource_of_rit_k8s_rdma(make_pod: MakePod) -> None:
    """A request's own containers win; if none is named, all containers get the devices."""
    limits = {"limits": {"rdma-sriov/dev-infiniband-mount": "1"}}
    containers = [{"name": "a"}, {"name": "b", "resources": limits}]
    pod_info = read_pod_info(make_pod(request=[{}, {"containers": ["a"]}], spec={"containers": containers}))
    assert isinstance(pod_info, PodInfo)
    assert [interface.containers for interface in pod_info.interfaces] == [("b",), ("a",)]
    plain = read_pod_info(make_pod(request=[{}]))
    assert isinstance(plain, PodInfo)
    assert [interface.containers for interface in plain.interfaces] == [None]


def test_a_count_of_hustcats_resource_asks_for_as_many_plain_vfs(make_pod: MakePod) -> None:
    """Each container gets its own devices; a request in an annotation takes precedence."""
    containers = [
        {"name": "trainer", "resources": {"limits": {"tencent.com/rdma": "2"}}},
        {"name": "logger"},
        {"name": "loader", "resources": {"limits": {"tencent.com/rdma": 1}}},
    ]
    pod_info = read_pod_info(make_pod(spec={"containers": containers}))
    assert isinstance(pod_info, PodInfo)
    assert [interface.containers for interface in pod_info.interfaces] == [("trainer",), ("trainer",), ("loader",)]
    assert all(interface.min_tx_rate == 0 for interface in pod_info.interfaces)
    pod_info = read_pod_info(make_pod(request=[{}], spec={"containers": containers}))
    assert isinstance(pod_info, PodInfo)
    assert len(pod_info.interfaces) == 1
    greedy = {"name": "greedy", "resources": {"limits": {"tencent.com/rdma": "65"}}}
    refusal = read_pod_info(make_pod(spec={"containers": [greedy]}))
    assert isinstance(refusal, Refused)
    assert "'tencent.com/rdma': 65 VFs exceed the limit of 64" in refusal.reason


def test_pods_that_request_different_numbers_of_vfs_have_different_shapes(make_pod: MakePod) -> None:
    """The sum of hustcat's resource, init containers included, is not the number of VFs that it requests."""

    def using(count: int) -> dict[str, Any]:
        return {"name": f"c{count}", "resources": {"limits": {"tencent.com/rdma": count}}}

    two = read_pod_info(make_pod(spec={"containers": [using(2)]}))
    one = read_pod_info(make_pod(spec={"containers": [using(1)], "initContainers": [using(2)]}))
    assert isinstance(two, PodInfo)
    assert isinstance(one, PodInfo)
    assert two.resources == one.resources
    assert (len(two.interfaces), len(one.interfaces)) == (2, 1)
    assert two.shape != one.shape


def test_a_pod_without_containers_is_read(make_pod: MakePod) -> None:
    """No API server takes one; it counts as nothing."""
    pod_info = read_pod_info(make_pod(spec={"containers": None}))
    assert isinstance(pod_info, PodInfo)
    assert set(pod_info.scored.values()) == {0}


@pytest.mark.parametrize(
    ("limited", "request_", "others", "refused"),
    [
        ("2", [{}, {}], {}, ""),
        ("1", [{}, {}], {}, "the pod has 2 interface(s), but its containers limit 'rdma-sriov/vf' to 1"),
        ("1", None, {}, "the pod has 0 interface(s), but its containers limit 'rdma-sriov/vf' to 1"),
        ("0", [], {}, ""),
        ("2", None, {"tencent.com/rdma": "2"}, ""),
        ("2", None, {"tencent.com/rdma": "1"}, "the pod has 1 interface(s), but its containers limit"),
    ],
)
def test_a_limit_of_vfs_must_be_as_many_as_the_interfaces(
    limited: str, request_: object, others: dict[str, str], refused: str, make_pod: MakePod
) -> None:
    """A quota counts the limit, the scheduler the interfaces: where they differ, one of them would be wrong."""
    container = {"name": "c", "resources": {"limits": {"rdma-sriov/vf": limited} | others}}
    pod_info = read_pod_info(make_pod(request=request_, spec={"containers": [container]}))
    assert isinstance(pod_info, Refused) == bool(refused)
    assert not isinstance(pod_info, Refused) or refused in pod_info.reason


@pytest.mark.parametrize(
    ("limited", "request_", "refused"),
    [
        ("5k", [{"min_tx_rate": 3000}, {"min_tx_rate": 2000}, {}], ""),
        ("3000", [{"min_tx_rate": 3000}, {"min_tx_rate": 2000}], "the pod's interfaces reserve 5000 Mb/s"),
        ("1", None, "the pod's interfaces reserve 0 Mb/s"),
        ("0", [{}], ""),
    ],
)
def test_a_limit_of_mbps_must_be_what_the_interfaces_reserve(
    limited: str, request_: object, refused: str, make_pod: MakePod
) -> None:
    """A quota and an autoscaler count the limit, the scheduler the interfaces."""
    container = {"name": "c", "resources": {"limits": {"rdma-sriov/mbps": limited}}}
    pod_info = read_pod_info(make_pod(request=request_, spec={"containers": [container]}))
    assert isinstance(pod_info, Refused) == bool(refused)
    assert not isinstance(pod_info, Refused) or refused in pod_info.reason


def test_the_limits_of_all_containers_count_together(make_pod: MakePod) -> None:
    """As a quota counts them: those that run at once are added up."""
    using = [{"name": name, "resources": {"limits": {"rdma-sriov/vf": "1"}}} for name in ("a", "b")]
    assert isinstance(read_pod_info(make_pod(request=[{}, {}], spec={"containers": using})), PodInfo)
    assert isinstance(read_pod_info(make_pod(request=[{}], spec={"containers": using})), Refused)
