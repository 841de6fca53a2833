"""The manifest of rit-k8s-rdma's documents, unmodified but for `schedulerName`, from `kubectl apply` to its containers.

The manifest is the one that `docs/migration.md` shows under "Before". The host is simulated, containerd and runc are
not. Its image is one of theirs that can no longer be pulled: here it names an image that sleeps.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.api import PODS, Api, Object
from devcluster.cluster import Cluster
from devcluster.demo import check, hosts
from devcluster.runtime.images import full_name, write_images
from mooring import names
from tests.support.polling import wait_until

PAGE = Path(__file__).parents[3] / "docs/migration.md"
NODE = "n1"


def documented_pod() -> dict[str, Any]:
    """Return the manifest as it is in rit-k8s-rdma's documents."""
    section = PAGE.read_text(encoding="utf-8").split("## From rit-k8s-rdma", 1)[1]
    before = re.search(r"Before:\n\n```yaml\n(.*?)```", section, re.DOTALL)
    assert before is not None
    pod: dict[str, Any] = yaml.safe_load(before[1])
    assert "schedulerName" not in pod["spec"]
    return pod


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One simulated host with containerd, on which every program of Mooring runs."""
    images = [full_name(container["image"]) for container in documented_pod()["spec"]["containers"]]
    write_images(tmp_path / "images.tar", asleep=images)
    started = Cluster(tmp_path, (NODE,))
    try:
        started.start()
        yield started
    finally:
        started.stop()


def await_running(api: Api, name: str) -> Object:
    """Return a pod once its containers run; fail with what its Events say."""

    def is_running() -> bool:
        return check.is_running(api.pods()[name])

    try:
        wait_until(is_running, f"{name} is Running", pause_s=0.2)
    except AssertionError as late:
        late.add_note(f"its Events: {[event.get('message') for event in api.events_of(name)]}")
        raise
    return api.pods()[name]


@pytest.mark.containerd
def test_the_pod_of_rit_k8s_rdmas_documents_runs_with_only_its_scheduler_changed(cluster: Cluster) -> None:
    """Three VFs, the rates of the annotation on their PFs, the netdevs in the pod, its own devices in its container."""
    api, pod = Api.of(cluster.kubeconfig), documented_pod()
    pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
    api.request("POST", PODS, pod)
    found = await_running(api, pod["metadata"]["name"])

    given, views = check.look(cluster, {pod["metadata"]["name"]: found})
    assert [vf.rates for vf in given] == [(15000, 20000), (5000, 0), (0, 0)]
    assert [vf.interface for vf in given] == ["net1", "net2", "net3"]
    assert all(vf.in_pod for vf in given)
    host = cluster.layout(NODE)
    own = {device for vf in given for device in hosts.own_devices(host, vf.entry["pci"])}
    assert {view.name: set(view.devices) for view in views} == {"mofed-test-ctr1": own | {"rdma_cm"}}
