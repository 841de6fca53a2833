"""Mooring's own kind, GPUs: from a pod's limits and annotation to the assignment in its Binding."""

from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, GpuOut, dump_gpu_inventory
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.placement.gpus import gpu_kind
from scheduler.server.startup import GROUP, load_kinds
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Life, assignment_of, bound

KINDS = Kinds([gpu_kind()])


def _pci(number: int) -> str:
    return f"0000:{number + 16:02x}:00.0"


def _path(switch: int, port: int) -> tuple[str, ...]:
    return (f"0000:0{switch}:01.0", f"0000:0{switch}:02.0", f"0000:0{switch}:{port + 3:02x}.0")


@pytest.fixture
def make_host(make_node: MakeNode, make_pf: MakePf) -> Callable[..., Node]:
    """Make a node with two switches, each with a PF and two GPUs; ``out`` are the numbers of GPUs that are out."""

    def make(name: str = "n1", vfs: int = 4, out: tuple[int, ...] = (), capacity: int = 4) -> Node:
        pfs = tuple(make_pf(switch, vfs, pcie=_path(switch, 9)) for switch in range(2))
        every = [Gpu(_pci(n), f"GPU-{name}-{n}", "nvidia", "H100", 80000, 0, _path(n // 2, n), 0) for n in range(4)]
        inventory = GpuInventory(
            tuple(one for n, one in enumerate(every) if n not in out), tuple(GpuOut(_pci(n), "Xid 79") for n in out)
        )
        annotations = {KEY: dump_gpu_inventory(inventory)}
        return make_node(name, pfs, annotations=annotations, allocatable={"mooring.dev/gpu": str(capacity)})

    return make


def _limits(**counts: int) -> list[dict[str, object]]:
    """Return containers with so many GPUs."""
    amounts = [(name, {"mooring.dev/gpu": str(count)} if count else {}) for name, count in counts.items()]
    return [{"name": name, "resources": {"limits": found, "requests": found}} for name, found in amounts]


@pytest.fixture
def ask(make_pod: MakePod) -> Callable[..., Pod]:
    """Make a pod whose containers limit so many GPUs, with VFs and the annotation where given."""

    def make(annotation: str | None = None, vfs: int = 0, early: object = None, **counts: int) -> Pod:
        notes = {} if annotation is None else {"mooring.dev/request.gpu": annotation}
        spec = {"containers": _limits(**counts)} | ({"initContainers": early} if early else {})
        return make_pod(request=[{}] * vfs or None, annotations=notes, spec=spec)

    return make


Ask = Callable[..., Pod]


@pytest.fixture
def life(start_life: StartLife) -> Life:
    return start_life(KINDS)


def _gpus(life: Life, pod: Pod) -> GpuAssignment:
    bind = life.place(pod)
    assignment = assignment_of(bind)
    life.see(bound(pod, bind))
    found = assigned_gpus(assignment)
    assert found is not None
    return found


def test_limits_alone_are_a_request(life: Life, make_host: MakeNode, ask: Ask) -> None:
    """The assignment has the GPUs by address and UUID, and each container's, the init container's shared."""
    life.see(make_host())
    early = _limits(warm=2)
    found = _gpus(life, ask(main=1, log=0, eval=1, early=early))
    assert found == GpuAssignment(
        units=(_pci(0), _pci(1)),
        uuids=("GPU-n1-0", "GPU-n1-1"),
        containers={"warm": (_pci(0), _pci(1)), "main": (_pci(0),), "eval": (_pci(1),)},
    )


def test_nodes_of_one_model_share_what_is_left_and_give_their_own_gpus(
    life: Life, make_host: MakeNode, ask: Ask
) -> None:
    """A choice depends on no UUID, so that equal GPUs of two nodes are judged once; each assignment has its node's."""
    life.see(make_host("n1"), make_host("n2"))
    column, row_of = life.machine.cache.nodes.unit_pools["gpu"], life.machine.cache.nodes.row_of
    assert column[row_of["n1"]] is column[row_of["n2"]]
    found = [assignment_of(life.place(ask(main=4))) for _ in range(2)]
    given = {one.node: gpus.uuids for one in found if (gpus := assigned_gpus(one)) is not None}
    assert given == {name: tuple(f"GPU-{name}-{number}" for number in range(4)) for name in ("n1", "n2")}


def test_a_gpu_is_given_once_and_again_when_its_pod_is_gone(life: Life, make_host: MakeNode, ask: Ask) -> None:
    life.see(make_host())
    first = ask(main=3)
    bind = life.place(first)
    life.see(bound(first, bind))
    second = ask(main=2)
    assert "Insufficient mooring.dev/gpu" in str(life.place(second))
    life.end(bound(first, bind))
    assert assignment_of(life.step()).ext["gpu"]


def test_each_interface_lies_under_the_switch_of_its_gpu(life: Life, make_host: MakeNode, ask: Ask) -> None:
    """The assignment says which; a GPU more is free."""
    life.see(make_host())
    pod = ask('{"vfs":"switch"}', vfs=2, main=3)
    assignment = assignment_of(life.place(pod))
    found = assigned_gpus(assignment)
    assert found is not None
    assert dict(found.beside) == {_pci(0): 0, _pci(1): 1}
    assert [vf.pf for vf in assignment.vfs] == ["pf0", "pf0"]


def test_a_full_pf_moves_the_gpus_to_the_other_switch(life: Life, make_host: MakeNode, ask: Ask) -> None:
    """One decision: the first switch has GPUs and no VF any more."""
    life.see(make_host(vfs=1))
    first = _gpus(life, ask('{"vfs":"switch"}', vfs=1, main=1))
    second = _gpus(life, ask('{"vfs":"switch"}', vfs=1, main=1))
    assert (first.units, second.units) == ((_pci(0),), (_pci(2),))


@pytest.mark.parametrize(
    ("annotation", "counts", "reason"),
    [
        ('{"count":2}', {"main": 1}, "the containers' limits of 'mooring.dev/gpu' add up to 1, not 2"),
        ('{"count":2}', {"main": 0}, "no container has a limit of 'mooring.dev/gpu'"),
        ('{"vfs":"switch"}', {"main": 1}, "request.gpu'.vfs: the pod requests no VFs"),
        ('[{"beside":0}]', {"main": 1}, "a list of 1 is not an object"),
        (None, {"main": 65}, "add up to 65, more than 64"),
        (None, {"main": 5}, "Insufficient mooring.dev/gpu"),
        ('{"model":"A*"}', {"main": 1}, "not enough free GPUs of the requested model or memory"),
        ('{"together":"switch"}', {"main": 3}, "not enough free GPUs under one PCIe switch"),
    ],
)
def test_why_a_pod_waits_is_said(
    life: Life, make_host: MakeNode, ask: Ask, annotation: str | None, counts: dict[str, int], reason: str
) -> None:
    life.see(make_host())
    assert reason in str(life.place(ask(annotation, **counts)))


def test_a_gpu_that_is_out_is_not_given_though_the_capacity_counts_it(
    life: Life, make_host: MakeNode, ask: Ask
) -> None:
    """A pod has it: then the kubelet must still admit that pod."""
    life.see(make_host(out=(0,)))
    assert _gpus(life, ask(main=1)).units == (_pci(1),)
    assert "not enough free GPUs" in str(life.place(ask(main=3)))


def test_a_node_without_an_inventory_of_gpus_gives_none(life: Life, make_node: MakeNode, ask: Ask) -> None:
    """Another program may publish a resource of that name."""
    life.see(make_node("n1", allocatable={"mooring.dev/gpu": "4"}))
    assert "node(s) had no gpu inventory" in str(life.place(ask(main=1)))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_no_device_plugin_gives_gpus_where_mooring_does(
    life: Life, make_host: MakeNode, make_node: MakeNode, make_pod: MakePod, resource: str
) -> None:
    """Two accounts of the same GPUs would give one to two pods. Other nodes serve such pods, this one others."""
    ours = make_host()
    ours.status.allocatable = {**(ours.status.allocatable or {}), resource: "4"}
    life.see(ours)
    amounts = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    refused = life.place(make_pod(spec={"containers": [{"name": "c", "resources": amounts}]}))
    assert f"1 node(s) offered GPUs as 'mooring.dev/gpu', not as '{resource}'." in str(refused)
    assert not isinstance(life.place(make_pod()), str)
    life.see(make_node("n2", allocatable={resource: "4"}))
    found = life.step()
    assert isinstance(found, Bind)
    assert found.assigned.node == "n2"


def test_no_plug_in_takes_the_name() -> None:
    point = EntryPoint("gpu", "mooring_licences:Licences", GROUP)
    (kind,) = load_kinds([point], built_in_kinds=[gpu_kind()])
    assert (kind.name, kind.resource, kind.defect) == ("gpu", "mooring.dev/gpu", "")
