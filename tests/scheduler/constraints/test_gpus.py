"""Mooring's own kind, GPUs: from a pod's limits and annotation to the assignment in its Binding."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from mooring.gpu.assignment import GpuAssignment, assigned_gpus
from mooring.gpu.inventory import Gpu, GpuInventory, GpuOut, dump_gpu_inventory
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.decisions import Bind
from scheduler.placement.gpus import gpu_kind
from scheduler.server.startup import GROUP, load_kinds
from tests.scheduler.conftest import Json
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import Found, KindStory, assignment_of
from tests.scheduler.story import play, stories

GPU = "mooring.dev/gpu"


def _pci(number: int) -> str:
    return f"0000:{number + 16:02x}:00.0"


def _path(switch: int, port: int) -> tuple[str, ...]:
    return (f"0000:0{switch}:01.0", f"0000:0{switch}:02.0", f"0000:0{switch}:{port + 3:02x}.0")


def _limits(**counts: int) -> list[dict[str, object]]:
    """Return containers with so many GPUs."""
    amounts = [(name, {GPU: str(count)} if count else {}) for name, count in counts.items()]
    return [{"name": name, "resources": {"limits": found, "requests": found}} for name, found in amounts]


def _given(found: Found) -> GpuAssignment:
    gpus = assigned_gpus(assignment_of(found))
    assert gpus is not None
    return gpus


class Hosts(KindStory):
    """Nodes with two switches, each with a PF and two GPUs, and the verbs of the stories of pods."""

    def host(self, name: str = "n1", vfs: int | str = 4, out: str = "", resource: str = GPU) -> None:
        """Show a node; ``out`` are the numbers of GPUs that are out."""
        pfs = tuple(self.life.make_pf(switch, int(vfs), pcie=_path(switch, 9)) for switch in range(2))
        every = [Gpu(_pci(n), f"GPU-{name}-{n}", "nvidia", "H100", 80000, 0, _path(n // 2, n), 0) for n in range(4)]
        inventory = GpuInventory(
            tuple(one for n, one in enumerate(every) if str(n) not in out),
            tuple(GpuOut(_pci(int(n)), "Xid 79") for n in out),
        )
        self.life.show_node(name, *pfs, gpu=dump_gpu_inventory(inventory), allocatable={GPU: "4", resource: "4"})

    def foreign(self) -> None:
        """Show a node of which another program has published a resource of that name."""
        self.life.show_node(allocatable={GPU: "4"})

    def asking(self, annotation: str | None = None, vfs: int = 0, early: object = None, **counts: int) -> Json:
        """Return the fields of a pod whose containers limit so many GPUs, with VFs and the annotation where given."""
        spec = {"containers": _limits(**counts)} | ({"initContainers": early} if early else {})
        return {"gpu": annotation, "request": [{}] * vfs or None, "spec": spec}

    def place(self, annotation: str | None = None, **counts: Any) -> Bind | str:
        return self.life.outcome(self.life.asking(**self.asking(annotation, **counts)))

    def pod(self, name: str, count: str, vfs: str = "0", annotation: str | None = None) -> str:
        """Place a pod with so many GPUs, VFs and an annotation; return its GPUs by number, or why it waits."""
        self.come(name, **self.asking(annotation, int(vfs), main=int(count)))
        return self.decide()

    def given(self, bind: Bind) -> str:
        return " ".join(str(int(pci[5:7], 16) - 16) for pci in _given(bind).units)


@pytest.fixture
def hosts(start_life: StartLife) -> Hosts:
    return Hosts(start_life(Kinds([gpu_kind()])))


STORIES = {
    "a GPU is given once, and again when its pod is gone": f"""
        host | pod a 3 > 0 1 2 | pod b 2 > Insufficient {GPU}. | delete a | decide > 0 1""",
    # One decision: the first switch has GPUs and no VF any more.
    "a full PF moves the GPUs to the other switch": """
        host vfs=1 | pod a 1 1 {"vfs":"switch"} > 0 | pod b 1 1 {"vfs":"switch"} > 2""",
    # A pod has it: then the kubelet must still admit that pod.
    "a GPU that is out is not given though the capacity counts it": """
        host out=0 | pod a 1 > 1 | pod b 3 > not enough free GPUs.""",
    # Another program may publish a resource of that name.
    "a node without an inventory of GPUs gives none": "foreign | pod a 1 > node(s) had no gpu inventory.",
}


@stories(STORIES)
def test_gpus(story: str, hosts: Hosts) -> None:
    play(hosts, story)


def test_limits_alone_are_a_request(hosts: Hosts) -> None:
    """The assignment has the GPUs by address and UUID, and each container's, the init container's shared."""
    hosts.host()
    assert _given(hosts.place(main=1, log=0, eval=1, early=_limits(warm=2))) == GpuAssignment(
        units=(_pci(0), _pci(1)),
        uuids=("GPU-n1-0", "GPU-n1-1"),
        containers={"warm": (_pci(0), _pci(1)), "main": (_pci(0),), "eval": (_pci(1),)},
    )


def test_nodes_of_one_model_share_what_is_left_and_give_their_own_gpus(hosts: Hosts) -> None:
    """A choice depends on no UUID, so that equal GPUs of two nodes are judged once; each assignment has its node's."""
    hosts.host("n1")
    hosts.host("n2")
    nodes = hosts.life.machine.cache.nodes
    assert nodes.unit_pools["gpu"][nodes.row_of["n1"]] is nodes.unit_pools["gpu"][nodes.row_of["n2"]]
    found = [hosts.place(main=4) for _ in range(2)]
    given = {assignment_of(one).node: _given(one).uuids for one in found}
    assert given == {name: tuple(f"GPU-{name}-{number}" for number in range(4)) for name in ("n1", "n2")}


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
def test_why_a_pod_waits_is_said(hosts: Hosts, annotation: str | None, counts: dict[str, int], reason: str) -> None:
    hosts.host()
    assert reason in str(hosts.place(annotation, **counts))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_no_device_plugin_gives_gpus_where_mooring_does(hosts: Hosts, resource: str) -> None:
    """Two accounts of the same GPUs would give one to two pods. Other nodes serve such pods, this one others."""
    life, amounts = hosts.life, {"limits": {resource: "1"}, "requests": {resource: "1"}}
    hosts.host(resource=resource)
    refused = life.outcome(life.make_pod(spec={"containers": [{"name": "c", "resources": amounts}]}))
    assert f"1 node(s) offered GPUs as '{GPU}', not as '{resource}'." in str(refused)
    assert not isinstance(life.outcome(life.make_pod()), str)
    life.show_node("n2", allocatable={resource: "4"})
    found = life.decide()
    assert isinstance(found, Bind)
    assert found.assigned.node == "n2"


def test_no_plug_in_takes_the_name() -> None:
    point = EntryPoint("gpu", "mooring_licences:Licences", GROUP)
    (kind,) = load_kinds([point], built_in_kinds=[gpu_kind()])
    assert (kind.name, kind.resource, kind.defect) == ("gpu", "mooring.dev/gpu", "")
