"""`kubectl mooring gpus`, and what `explain` says of a pod's GPUs: from values, and from an API server."""

import json
from collections.abc import Sequence

from cli.plugin.reports import gpus
from cli.plugin.reports.tables import Answer, draw
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment, dump_assignment
from mooring.gpu.assignment import GpuAssignment, details_of
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, GpuOut, dump_gpu_inventory
from mooring.nic.settings import VfSettings
from tests.cli.plugin.cluster import Json, Served, as_nodes, as_pods, node, pf, pod

SWITCH, ROOT, PORT = "0000:16:00.0", "0000:15:01.0", "0000:17:04.0"
FIRST, SECOND, OUT = "0000:1b:00.0", "0000:1c:00.0", "0000:43:00.0"
PF = pf(0, pcie=(ROOT, SWITCH, "0000:17:00.0"))


def _gpu(pci: str, number: int, *pcie: str) -> Gpu:
    return Gpu(pci, f"GPU-{number}", "nvidia", "H100", 81_559, 0, pcie, 0)


INVENTORY = GpuInventory((_gpu(FIRST, 1, ROOT, SWITCH, PORT), _gpu(SECOND, 2)), (GpuOut(OUT, "MIG is on"),))


def _node(name: str = "n1", text: str | None = None) -> Json:
    found = node(name, (PF,))
    found["metadata"]["annotations"][KEY] = dump_gpu_inventory(INVENTORY) if text is None else text
    return found


def _holding(name: str, *units: str, on: str = "n1") -> Json:
    """Make a pod with GPUs and one VF, which lies beside the first of them."""
    uuids = tuple(f"GPU-{2 if pci == SECOND else 1}" for pci in units)
    chosen = GpuAssignment(units, uuids, {"main": units}, {units[0]: 0})
    vf = AssignedVf(PF.name, 2, PF.vf_pci(2), PF.link, PF.network, VfSettings())
    given = Assignment(f"uid-{name}", on, (vf,), {"gpu": {"units": list(units), **details_of(chosen)}})
    annotations = {names.ASSIGNMENT: dump_assignment(given)}
    return pod(name, "[{}]", annotations=annotations, spec={"nodeName": on}, status={"phase": "Running"})


def _rows(answer: Answer) -> list[list[str]]:
    return [line.split() for line in draw(answer.tables[:1], coloured=False).splitlines()[1:]]


def _states(answer: Answer) -> dict[str, str]:
    items = answer.document["items"]
    assert isinstance(items, Sequence)
    return {item["pci"]: item["state"] for item in items}


def test_each_gpu_has_a_row_with_its_pod_and_the_vf_under_its_switch() -> None:
    """The bridge is the lowest that both paths share; a GPU without a VF beside it has none."""
    answer = gpus.report(as_nodes(_node(), node("n2", (PF,))), as_pods(_holding("a", FIRST)), wide=False)
    assert _rows(answer) == [
        ["n1", FIRST, "used", "default/a", "0", "pf0", "2"],
        ["n1", SECOND, "free", "-", "-", "-", "-"],
        ["n1", OUT, "out", "-", "-", "-", "-"],
    ]


def test_wide_names_uuid_containers_and_why_a_gpu_is_out() -> None:
    """As for VFs."""
    answer = gpus.report(as_nodes(_node()), as_pods(_holding("a", FIRST, SECOND)), wide=True)
    assert _rows(answer)[0][2:12] == ["H100", "81559", "0", "0", "used", "default/a", "0", "pf0", "2", SWITCH]
    assert [row[-3:-1] for row in _rows(answer)[:2]] == [["GPU-1", "main"], ["GPU-2", "main"]]
    assert _rows(answer)[2][-3:] == ["MIG", "is", "on"]
    # It has a pod, and no VF beside it.
    assert _rows(answer)[1][7:12] == ["default/a", "-", "-", "-", "-"]


def test_a_gpu_that_is_out_while_a_pod_has_it_is_shown_with_both() -> None:
    """The reason is what the operator looks for, and the pod whom it concerns."""
    answer = gpus.report(as_nodes(_node()), as_pods(_holding("a", OUT)), wide=False)
    assert _rows(answer)[2][2:4] == ["out", "default/a"]


def test_two_pods_with_one_gpu_and_a_gpu_that_is_gone_are_named() -> None:
    """The first is a dispute; the second a card that was taken out under its pod."""
    holding = as_pods(_holding("a", FIRST), _holding("b", FIRST), _holding("c", "0000:99:00.0"))
    answer = gpus.report(as_nodes(_node()), holding, wide=False)
    assert [row[2:4] for row in _rows(answer) if row[1] == FIRST] == [
        ["disputed", "default/a"],
        ["disputed", "default/b"],
    ]
    assert _states(answer)["0000:99:00.0"] == "gone"


def test_a_pod_that_has_ended_and_a_copied_assignment_hold_nothing() -> None:
    """As for VFs: the uid and the node must be the pod's own."""
    ended = _holding("a", FIRST) | {"status": {"phase": "Succeeded"}}
    copied = _holding("b", FIRST)
    copied["metadata"]["uid"] = "uid-of-another"
    assert _states(gpus.report(as_nodes(_node()), as_pods(ended, copied), wide=False))[FIRST] == "free"


def test_without_the_pods_use_is_unknown() -> None:
    """Free would be wrong; what is out is known all the same."""
    states = _states(gpus.report(as_nodes(_node()), None, wide=False))
    assert states == {FIRST: "?", SECOND: "?", OUT: "out"}


def test_an_annotation_that_cannot_be_read_is_a_row_with_the_reason() -> None:
    """One node's fault leaves the others' rows as they are."""
    answer = gpus.report(as_nodes(_node("n1", "{"), _node("n2")), [], wide=False)
    assert _rows(answer)[-1][:2] == ["n1", "-"]
    assert "mooring.dev/inventory.gpu" in draw(answer.tables, coloured=False)
    assert len(_rows(answer)) == 4


async def test_the_commands_show_the_pairs_of_an_api_server(served: Served) -> None:
    """`gpus` for all nodes; `explain` for one pod, with its node's bridges."""
    _, out, _ = await served.run("gpus")
    assert out == "no node publishes GPUs\n"
    await served.add_node(_node())
    await served.add_pod(_holding("a", FIRST, SECOND))
    status, out, err = await served.run("gpus")
    assert (status, err, len(out.splitlines())) == (0, "", 4)
    _, out, _ = await served.run("explain", "a")
    table = out.split("GPUs\n", 1)[1].splitlines()
    assert table[1].split() == [FIRST, "GPU-1", "main", "0", "pf0", "2", SWITCH]
    assert table[2].split() == [SECOND, "GPU-2", "main", "-", "-", "-", "-"]
    _, out, _ = await served.run("explain", "a", "-o", "json")
    pair = {"pci": FIRST, "uuid": "GPU-1", "containers": ["main"], "interface": 0, "pf": "pf0", "vf": 2}
    assert json.loads(out)["gpus"][0] == pair


async def test_explain_decides_again_about_gpus_too(served: Served) -> None:
    """They are Mooring's own: a pod without an event is told what the scheduler would tell it."""
    ours = _node()
    ours["status"]["allocatable"]["mooring.dev/gpu"] = "2"
    await served.add_node(ours)

    async def explained(name: str, request: str, count: int) -> str:
        amounts = {"limits": {"mooring.dev/gpu": str(count)}, "requests": {"mooring.dev/gpu": str(count)}}
        containers = [{"name": "main", "image": "i", "resources": amounts}]
        notes = {"mooring.dev/request.gpu": request} if request else {}
        await served.add_pod(pod(name, "[{}]", annotations=notes, spec={"containers": containers}))
        _, out, _ = await served.run("explain", name)
        return out

    assert "would be bound to n1" in await explained("a", '{"vfs":"switch"}', 1)
    assert "1 not enough free GPUs of the requested model" in await explained("b", '{"model":"A*"}', 1)
    assert "'nvlink' is not one of link, switch, numa" in await explained("c", '{"together":"nvlink"}', 1)
    assert "would be bound to n1" in await explained("d", "", 2)
    await served.add_pod(_holding("holds", FIRST))
    assert "1 not enough free GPUs" in await explained("e", "", 2)


async def test_explain_shows_the_pairs_without_the_right_to_read_nodes(guarded: Served) -> None:
    """What is missing is the bridge, and a note says why."""
    await guarded.add_node(_node())
    await guarded.add_pod(_holding("a", FIRST))
    await guarded.restrict("pods", "events", verbs=("get", "list"))
    status, out, err = await guarded.run("explain", "a")
    assert status == 0
    assert out.split("GPUs\n", 1)[1].splitlines()[1].split()[-3:] == ["pf0", "2", "-"]
    assert "nodes" in err
