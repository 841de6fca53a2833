"""The commands of the quick start, as they stand in the page, on a cluster of simulated hosts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.api import Api
from devcluster.cluster import Cluster
from devcluster.demo import check
from tests.docs.pages import commands, files
from tests.support.polling import wait_until

PAGE = "quick-start.md"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three hosts, as the demo has them."""
    started = Cluster(tmp_path / "cluster", ("n1", "n2", "n3"), runtime="small", is_whole=True)
    try:
        started.start()
        yield started
    finally:
        started.stop()


def typed(cluster: Cluster, folder: Path, command: str) -> str:
    """Return a command's output in a terminal that is set up as on the page."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.mark.root
@pytest.mark.kubectl
def test_the_first_pod_runs_breaks_and_is_mended(cluster: Cluster, tmp_path: Path) -> None:
    """The pod runs with two VFs.

    With a rate that no NIC has it waits with the reason; a corrected annotation lets it run.
    """
    api = Api.of(cluster.kubeconfig)
    (manifest,) = files(PAGE, "Your first pod")
    (tmp_path / "first.yaml").write_text(manifest)

    def type_in(command: str) -> str:
        return typed(cluster, tmp_path, command)

    def runs() -> bool:
        return check.is_running(api.pods().get("first", {}))

    apply, *looks, delete = commands(PAGE, "Your first pod")
    type_in(apply)
    wait_until(runs, "the first pod runs")
    said = [type_in(look) for look in looks]
    assert "Successfully assigned default/first to n" in said[1]
    assert said[2].count('"pci"') == 2
    assert said[3].count("\nfirst ") == 2
    assert "Successfully assigned default/first to n" in said[4]
    type_in(delete)

    # RBAC and the admission policies are on: the doctor finds no error, and says so by its exit status.
    assert "guard/" not in type_in("kubectl mooring doctor")

    ask_too_much, describe, mend = commands(PAGE, "Break it")
    type_in(ask_too_much)
    wait_until(lambda: "0/3 nodes are available: " in type_in(describe), "the pod says why it waits")
    assert not runs()
    type_in(mend)
    wait_until(runs, "the mended pod runs")
