"""The cluster as a page: `kubectl mooring ui` beside the cluster's programs."""

import sys

from devcluster.cluster import Cluster


def page_address(cluster: Cluster) -> str:
    """Start it; return the address that it prints."""
    processes, log = cluster.processes, cluster.processes.logs / "ui.log"
    processes.start("ui", [sys.executable, "-m", "cli", "ui", "--kubeconfig", str(cluster.kubeconfig)])
    processes.await_ready("ui", lambda: "\n" in log.read_text())
    address = log.read_text().partition("\n")[0].removeprefix("open ")
    # It has a secret.
    log.unlink()
    return address
