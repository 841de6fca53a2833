"""The demonstration, `./run demo`: a cluster on this machine, pods with exact VFs, every promise checked."""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from devcluster.api import POD_GROUPS, PODS, PRIORITY_CLASSES, Api, Object, Recorder
from devcluster.cluster import Cluster, has_containerd
from devcluster.demo import check, gpus, hosts, view
from devcluster.demo.arguments import parser
from devcluster.demo.assess import demonstrate
from devcluster.demo.page import page_address
from devcluster.demo.scenario import FIRST, PAIRS, POD_GROUP, WHOLE_NODE, DemoPod, late_pod, pods, ranks
from devcluster.processes import StartError
from mooring import names
from mooring.gpu.inventory import KEY as GPUS

NODES = ("n1", "n2", "n3")
WITH_GPUS = ("n1", "n2")
_POLL_S = 0.3
# Against hanging: a slow machine with other work takes some of them a minute.
_READY_S = 120.0
_SETTLE_S = 180.0
_FAILED = "failed"
_ALL_PODS = "/api/v1/pods"


def main() -> int:
    """Return 0 only if every guarantee held."""
    arguments = parser().parse_args()
    console = view.console()
    if arguments.assess:
        return demonstrate(console, arguments.html)
    if os.geteuid() != 0 or shutil.which("nsenter") is None or shutil.which("ip") is None:
        console.print(
            "demo: needs root (or a user namespace) and iproute2, util-linux: simulated hosts are network namespaces"
        )
        return 1
    root, runtime = Path(tempfile.mkdtemp(prefix="mooring-demo-")), _runtime(arguments.runtime)
    cluster = Cluster(
        root, NODES, runtime=runtime, gpus_on=WITH_GPUS, is_whole=True, fetched_runtimes=_fetched_runtimes()
    )
    # SIGHUP: its terminal was closed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: sys.exit(1))
    try:
        return _run(console, cluster, keep=arguments.keep)
    except KeyboardInterrupt:
        console.print("\ndemo: interrupted")
        return 130
    finally:
        console.print("[dim]Ending all programs.[/]")
        cluster.stop()
        # The logs of what failed stay.
        if not (root / _FAILED).exists():
            shutil.rmtree(root, ignore_errors=True)


def _run(console: Console, cluster: Cluster, *, keep: bool) -> int:
    """Return the exit status; mark a failure, whose logs stay, by a file in the root folder."""
    try:
        view.print_step(console, 1, "start a cluster of three hosts on this machine")
        cluster.start(lambda text: console.print(f"  {text}", markup=False))
        verdicts = Demo(console, cluster).play(keep=keep)
    except (StartError, OSError) as failed:
        (cluster.root / _FAILED).touch()
        console.print(f"demo: {failed}\nlogs: {cluster.root}/logs", markup=False)
        return 1
    broken = [verdict for verdict in verdicts if not verdict.held]
    if broken:
        (cluster.root / _FAILED).touch()
        console.print(f"\n[red]✗[/] {len(broken)} of {len(verdicts)} checks failed; logs: {cluster.root}/logs")
        return 1
    console.print(f"\nAll {len({verdict.promise for verdict in verdicts})} promises held.")
    return 0


def _runtime(wanted: str | None) -> str:
    return wanted or ("containerd" if has_containerd() and not _in_user_namespace() else "small")


def _in_user_namespace() -> bool:
    return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]


def _fetched_runtimes() -> Path:
    """Return where devcluster/runtime/fetch leaves what it unpacks."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mooring/runtimes"


class Demo:
    """The steps of the demonstration, in order; each prints what it shows."""

    def __init__(self, console: Console, cluster: Cluster) -> None:
        self._console = console
        self._cluster = cluster
        self._api = Api.of(cluster.kubeconfig)
        self._recorder = Recorder(self._api)
        self._pods = pods(list(cluster.nodes))
        self._denied: dict[str, str] = {}

    def play(self, *, keep: bool) -> list[check.Verdict]:
        """Return a verdict for each guarantee; each is printed as soon as nothing can change it any more."""
        self._await_nodes()
        before = {node: hosts.state(self._cluster.layout(node)) for node in self._cluster.nodes}
        self._recorder.start()
        self._step(2, "create nine pods, of which three must be refused")
        self._api.request("POST", PRIORITY_CLASSES, FIRST)
        self._apply(self._pods)
        self._await_pods(self._pods)
        self._step(3, "kill one program of each kind, and create one more pod")
        undisturbed = self._kill_and_restart()
        self._step(4, "look at what the pods have been given")
        verdicts = [*self._look(), undisturbed]
        self._step(5, "start a job of six ranks, for which there is no room at first")
        verdicts.append(self._start_job())
        if keep:
            self._print_verdicts(verdicts)
            self._leave_up()
        self._step(6, "delete all pods, and look at every VF again")
        verdicts.append(self._delete_all(before))
        self._console.print()
        self._print_verdicts(verdicts)
        return verdicts

    def _step(self, number: int, title: str) -> None:
        view.print_step(self._console, number, title)

    def _print_verdicts(self, verdicts: Sequence[check.Verdict]) -> None:
        self._console.print("[bold]Promises[/]")
        for verdict in sorted(verdicts, key=lambda verdict: verdict.promise):
            view.print_verdict(self._console, verdict)

    def _await_nodes(self) -> None:
        def published() -> bool:
            nodes = self._api.items("/api/v1/nodes")
            ready = [node for node in nodes if self._has_published(node["metadata"])]
            return len(ready) == len(self._cluster.nodes) and not any(node["spec"].get("taints") for node in nodes)

        _await(published, _READY_S, "nodes Ready, each with its inventory")
        self._console.print(f"  {len(self._cluster.nodes)} nodes are Ready and have published their inventory\n")

    def _has_published(self, metadata: Object) -> bool:
        kinds = {names.INVENTORY} | ({GPUS} if metadata["name"] in self._cluster.gpus_on else set())
        return kinds <= set(metadata.get("annotations", {}))

    def _apply(self, wanted: Sequence[DemoPod]) -> None:
        for pod in wanted:
            try:
                self._api.request("POST", PODS, pod.manifest())
            except urllib.error.HTTPError as denied:
                self._denied[pod.name] = json.load(denied).get("message", "")

    def _await_pods(self, wanted: Sequence[DemoPod], shown: Sequence[DemoPod] | None = None) -> None:
        with self._live() as live:

            def settled() -> bool:
                found, said = self._api.pods(), {**self._latest_events(), **self._denied}
                live.update(view.progress(shown or wanted, found, said), refresh=True)
                return all(_settled(pod, found.get(pod.name), said.get(pod.name, "")) for pod in wanted)

            _await(settled, _SETTLE_S, "every pod Running or refused with its reason")

    @contextlib.contextmanager
    def _live(self) -> Iterator[Live]:
        with Live(console=self._console, auto_refresh=False, transient=False) as live:
            yield live
        # Behind the last line, which stays where it is.
        self._console.print()

    def _latest_events(self) -> Mapping[str, str]:
        events = self._api.items("/api/v1/namespaces/default/events")
        return {event["involvedObject"].get("name", ""): event.get("message", "") for event in events}

    def _kill_and_restart(self) -> check.Verdict:
        """Kill one program of each kind with SIGKILL, start them again, and create one more pod."""
        killed = ("scheduler", "n1-shim", "n2-cni", "n3-advertiser")
        before = self._api.pods()
        self._console.print(f"  SIGKILL to {', '.join(killed)}; all start again")
        for name in killed:
            self._cluster.processes.kill(name)
        late = late_pod()
        self._apply([late])
        for name in killed:
            self._cluster.processes.restart(name)
        self._pods.append(late)
        self._await_pods(self._pods, shown=[late])
        return check.undisturbed(before, self._api.pods(), killed, late.name)

    def _look(self) -> list[check.Verdict]:
        found = self._api.pods()
        given, views = check.look(self._cluster, found)
        self._console.print(view.given_table(given, views))
        in_use = gpus.look(self._cluster, found)
        self._console.print()
        self._console.print(view.gpu_table(in_use, views))
        self._console.print()
        plain = [pod.name for pod in self._pods if pod.expect == "Running" and not pod.annotations]
        refused = [pod for pod in self._pods if pod.expect != "Running"]
        return [
            check.given_once(given),
            check.one_write(self._recorder.seen),
            check.exactly_applied(given, views, self._pods),
            gpus.exactly_given(in_use, views, PAIRS),
            check.untouched(found, views, plain),
            check.refused_by_name(self._api, found, refused, self._denied),
            check.within_offer(self._api.items("/api/v1/nodes"), given),
        ]

    def _start_job(self) -> check.Verdict:
        """Create a job that does not fit; when it waits as a whole, delete the pod that has a node to itself."""
        job = ranks()
        self._api.request("POST", POD_GROUPS, POD_GROUP)
        self._apply(job)
        self._await_pods(job)
        said, waiting = self._latest_events(), self._api.pods()
        self._console.print(f"  {WHOLE_NODE} is deleted: now there is room for all {len(job)} ranks")
        self._api.request("DELETE", f"{PODS}/{WHOLE_NODE}")
        self._await_pods([replace(rank, expect="Running") for rank in job])
        return check.all_or_none(waiting, said, self._api.pods(), job)

    def _leave_up(self) -> None:
        self._console.print("\nThe cluster stays up until Ctrl-C.")
        # From a user namespace no browser is reached.
        if not _in_user_namespace():
            self._console.print("Open it as a page in a browser of this machine:\n")
            self._console.print(f"    {page_address(self._cluster)}", soft_wrap=True, markup=False)
        self._console.print("\nOr ask it in another terminal, in this folder:\n")
        # Never broken over two lines, however narrow the terminal: people paste it.
        for line in (
            f"export KUBECONFIG={self._cluster.kubeconfig}",
            f'export PATH="{Path(sys.executable).parent}:$PATH"',
            "kubectl mooring nodes",
            "kubectl mooring pods",
            "kubectl mooring explain misspelt",
        ):
            self._console.print(f"    {line}", soft_wrap=True, markup=False)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
        self._console.print()

    def _delete_all(self, before: Mapping[str, hosts.HostState]) -> check.Verdict:
        self._console.print("  This may take two minutes on a slow machine.")
        # Also those that a person has made in a cluster that was kept up, in any namespace: nothing makes them again.
        self._cluster.processes.kill("controllers")
        for metadata in [pod["metadata"] for pod in self._api.items(_ALL_PODS)]:
            with contextlib.suppress(urllib.error.HTTPError):
                self._api.request("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}")
        _await(lambda: not self._api.items(_ALL_PODS), _SETTLE_S, "every pod deleted")

        def after() -> dict[str, hosts.HostState]:
            return {node: hosts.state(self._cluster.layout(node)) for node in self._cluster.nodes}

        # A pod record outlives its pod by design (the shim removes it after two lists 10 min apart): not compared.
        with contextlib.suppress(TimeoutError):
            _await(lambda: check.given_back(before, after()).held, _READY_S, "every VF back")
        return check.given_back(before, after())


def _settled(pod: DemoPod, found: Object | None, said: str) -> bool:
    if pod.expect == "Running":
        return found is not None and check.is_running(found)
    return pod.says in said


def _await(reached: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not reached within {limit_s:.0f} s: {what}")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
