"""The scheduler's own program with a constraint installed beside it: from a pod's annotation to its binding."""

from pathlib import Path

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment
from tests.scheduler.conftest import MakeNode, MakePf
from tests.scheduler.reference.messages import refusal
from tests.scheduler.server.cluster import Cluster
from tests.scheduler.server.process import ALONE, scheduler


async def test_pods_get_units_and_vfs_from_the_running_scheduler(
    cluster: Cluster, toy: Path, make_node: MakeNode, make_pf: MakePf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by its entry point; a pod that requests an unknown kind, or more than there is, gets a message."""
    monkeypatch.setenv("PYTHONPATH", str(toy))
    having = {"mooring.dev/inventory.licence": '{"v":1,"cad":1}'}
    asking = {"mooring.dev/request.licence": '{"name":"cad","count":1}'}
    await cluster.add_node(make_node("n1", (make_pf(),), annotations=having))
    await cluster.add_pod("first", "[{}]", annotations=asking)
    async with scheduler(cluster, *ALONE):
        pod = (await cluster.bound("first"))["first"]
        assignment = read_assignment(pod.annotations[names.ASSIGNMENT])
        assert [vf.pf for vf in assignment.vfs] == ["pf0"]
        assert assignment.ext == {"licence": {"units": ["cad/0"]}}
        await cluster.add_pod("second", annotations=asking)
        assert refusal(await cluster.message_of("second")) == "0/1 nodes are available: 1 not enough free cad licences."
        await cluster.add_pod("third", annotations={"mooring.dev/request.fpga": "1"})
        assert "no constraint 'fpga' is installed" in await cluster.message_of("third")
