"""The demo's check of GPUs can fail, and reads where a GPU meets its VF from the host's sysfs."""

import json
from dataclasses import replace
from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.demo import gpus
from devcluster.demo.check import ContainerView
from devcluster.demo.gpus import GpuInUse
from devcluster.hosts.boot import start_fresh
from devcluster.hosts.nic import describe_host
from mooring import names

SWITCH = "0000:02:00.0"
GIVEN = GpuInUse("a", "n1", "main", "0000:10:00.0", "GPU-1", "nvidia0", "0000:04:00.2", SWITCH, SWITCH)
VIEW = ContainerView("a", "main", frozenset(), {}, frozenset({"nvidia0"}))


def test_anything_but_the_decided_gpus_is_a_breach() -> None:
    """A GPU in two pods, one that a container lacks or has too much, a VF elsewhere, or no GPU at all."""
    assert gpus.exactly_given([GIVEN], [VIEW], 1).held
    assert not gpus.exactly_given([], [], 0).held
    assert not gpus.exactly_given([GIVEN, replace(GIVEN, pod="b")], [VIEW, replace(VIEW, pod="b")], 2).held
    for seen in ((), ("nvidia0", "nvidia1"), ("nvidia1",)):
        assert not gpus.exactly_given([GIVEN], [replace(VIEW, gpus=frozenset(seen))], 1).held
    assert not gpus.exactly_given([GIVEN], [VIEW, replace(VIEW, pod="plain")], 1).held
    for meets in ("", "0000:00:01.0"):
        assert not gpus.exactly_given([replace(GIVEN, meets=meets)], [VIEW], 1).held
    assert not gpus.exactly_given([replace(GIVEN, vf=None, meets="")], [VIEW], 1).held


def test_a_gpu_meets_its_vf_where_sysfs_shows_it(tmp_path: Path) -> None:
    """The near GPUs below the NIC's switch, the far ones nowhere."""
    cluster = Cluster(tmp_path, ("n1",))
    start_fresh(describe_host("n1", 1, gpus=4), cluster.layout("n1"))
    units = ["0000:12:00.0", "0000:08:00.0"]
    given = {"units": units, "containers": {"main": units}, "beside": dict.fromkeys(units, 0)}
    decided = {"vfs": [{"pci": "0000:04:00.2"}], "ext": {"gpu": given}}
    pod = {
        "metadata": {"annotations": {names.ASSIGNMENT: json.dumps(decided)}},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    near, far = gpus.look(cluster, {"a": pod})
    assert (near.meets, near.nearest, near.node_name) == (SWITCH, SWITCH, "nvidia2")
    assert (far.meets, far.nearest, far.node_name) == ("", "", "nvidia0")
    assert near.uuid == "GPU-00000001-0000-4000-8000-000000000002"
