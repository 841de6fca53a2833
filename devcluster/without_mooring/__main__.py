"""``./run devcluster``: a cluster of simulated hosts without Mooring, on which its installation can be tried.

./run devcluster up [--release DIR] [NODE ...]   start it and keep it up until Ctrl-C
./run devcluster on NODE [COMMAND]               a shell, or a command, on one of its hosts
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from devcluster.processes import StartError
from devcluster.without_mooring.cluster import ClusterWithoutMooring, kept
from devcluster.without_mooring.root import is_possible, kubectl_is_too_old

NODES = ("n1", "n2", "n3")
# Names the folder of the cluster that is up.
FOLDER = "MOORING_DEVCLUSTER"
RELEASE = Path("dist")


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="./run devcluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("nodes", nargs="*", default=NODES)
    up.add_argument("--release", type=Path, default=RELEASE, help="folder of `./run release` (default: %(default)s)")
    on = commands.add_parser("on")
    on.add_argument("node")
    on.add_argument("words", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    return _up(given.nodes, given.release) if given.command == "up" else _on(given.node, given.words)


def _up(nodes: list[str], release: Path) -> int:
    console = Console(highlight=False)
    if why := is_possible():
        console.print(f"devcluster: {why}")
        return 1
    # SIGHUP: its terminal was closed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: sys.exit(1))
    root = Path(tempfile.mkdtemp(prefix="mooring-"))
    cluster = ClusterWithoutMooring(root, nodes, release)
    has_failed = False
    try:
        if why := kubectl_is_too_old():
            console.print(f"devcluster: {why}: `kubectl apply -k` of the manifests will fail")
        if not any(release.glob("*.oci.tar")):
            console.print(
                f"devcluster: folder {str(release)!r} has no images: `./run release` makes them", markup=False
            )
        cluster.start(lambda text: console.print(f"[dim]start[/] {text}"))
        console.print(
            "The cluster is up, without Mooring. In another terminal, in this folder:\n\n"
            f"    export {FOLDER}={root} KUBECONFIG={cluster.kubeconfig} PATH={cluster.commands}:$PATH\n\n"
            f"`on {nodes[0]}` is a shell on a host. Ctrl-C ends the cluster.",
            soft_wrap=True,
        )
        signal.pause()
    except KeyboardInterrupt:
        console.print("ending")
    except (StartError, OSError) as failed:
        console.print(f"devcluster: {failed}\nlogs: {root}/logs", markup=False)
        has_failed = True
    finally:
        cluster.stop()
        # A failure's logs stay. SIGTERM leaves by an exception.
        if not has_failed:
            shutil.rmtree(root, ignore_errors=True)
    return int(has_failed)


def _on(node: str, words: list[str]) -> int:
    folder = os.environ.get(FOLDER)
    if folder is None:
        print(f"devcluster: {FOLDER} names no cluster: export what `./run devcluster up` says", file=sys.stderr)
        return 2
    entered = kept(Path(folder), node, *(words or ("/bin/sh", "-i")))
    return subprocess.run(entered, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
