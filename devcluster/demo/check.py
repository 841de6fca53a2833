"""Check the guarantees from outside: the API's objects, the links, the ledger, the devices in the containers.

Each check takes what was read and returns a `Verdict`: the guarantee, how much was checked, and every breach by name. A
check without anything to check is a breach itself: it could not have failed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devcluster.api import Api, Object
from devcluster.cluster import Cluster
from devcluster.demo import hosts
from devcluster.demo.scenario import DemoPod
from mooring import names

_COMMON_DEVICES = {"rdma_cm"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one guarantee, which ``text`` states: ``breaches`` is empty if it held."""

    promise: int
    text: str
    looked_at: int
    breaches: tuple[str, ...]

    @property
    def held(self) -> bool:
        return self.looked_at > 0 and not self.breaches


@dataclass(frozen=True, slots=True)
class VfInUse:
    """One VF of one running pod, as its host and its containers show it."""

    pod: str
    uid: str
    node: str
    entry: Mapping[str, Any]
    interface: str
    in_pod: bool
    rates: tuple[int, int]
    own: frozenset[str]
    ledger: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of one running pod: the device nodes it sees, and Mooring's variables in its environment.

    ``devices`` are those of RDMA, ``gpus`` those of GPUs.
    """

    pod: str
    name: str
    devices: frozenset[str]
    variables: Mapping[str, str]
    gpus: frozenset[str] = frozenset()


def assignment(pod: Object) -> dict[str, Any] | None:
    text = pod["metadata"].get("annotations", {}).get(names.ASSIGNMENT)
    return json.loads(text) if text else None


def is_running(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def look(cluster: Cluster, pods: Mapping[str, Object]) -> tuple[list[VfInUse], list[ContainerView]]:
    """Read the state of every running pod's VFs and containers."""
    given, views = [], []
    for name, pod in pods.items():
        if not is_running(pod):
            continue
        given += _given(cluster, name, pod)
        runtime = hosts.Runtime(cluster.runtime_socket(pod["spec"]["nodeName"]))
        for container, identity in runtime.containers(pod["metadata"]["uid"]).items():
            mooring = {key: value for key, value in runtime.variables(identity).items() if key.startswith("MOORING_")}
            devices, gpus = runtime.devices(identity), runtime.gpus(identity)
            views.append(ContainerView(name, container, frozenset(devices), mooring, frozenset(gpus)))
    return given, views


def _given(cluster: Cluster, name: str, pod: Object) -> list[VfInUse]:
    decided = assignment(pod)
    if decided is None:
        return []
    host = cluster.layout(pod["spec"]["nodeName"])
    ledger = hosts.ledger(host)
    found = []
    for entry in decided["vfs"]:
        record = ledger.get(entry["pci"], {})
        interface = record.get("ifname", "")
        netns = record.get("netns", {}).get("path")
        found.append(
            VfInUse(
                pod=name,
                uid=pod["metadata"]["uid"],
                node=pod["spec"]["nodeName"],
                entry=entry,
                interface=interface,
                in_pod=netns is not None and interface in hosts.links(netns),
                rates=hosts.rates(host, entry["pf"], entry["vf"]),
                own=frozenset(hosts.own_devices(host, entry["pci"])),
                ledger=record,
            )
        )
    return found


def given_once(given: Sequence[VfInUse]) -> Verdict:
    times = Counter((vf.node, vf.entry["pci"]) for vf in given)
    twice = [f"{node} {pci} is in {count} pods" for (node, pci), count in times.items() if count > 1]
    strangers = [
        f"{vf.pod}: the ledger of {vf.entry['pci']} names {vf.ledger.get('uid')!r}" for vf in given if _stranger(vf)
    ]
    return Verdict(1, "no VF is given twice", len(given), (*twice, *strangers))


def _stranger(vf: VfInUse) -> bool:
    return vf.ledger.get("uid") != vf.uid or vf.ledger.get("phase") != "held"


def one_write(seen: Mapping[str, Sequence[Object]]) -> Verdict:
    """Check that every bound state of our pods carries its assignment, for that pod and node, and never changes it."""
    breaches, looked_at = [], 0
    for uid, states in seen.items():
        ours = [pod for pod in states if _asks(pod) and not pod["metadata"]["name"].startswith("forged")]
        bound = [pod for pod in ours if pod["spec"].get("nodeName")]
        looked_at += len(bound)
        values = {pod["metadata"].get("annotations", {}).get(names.ASSIGNMENT) for pod in bound}
        if None in values or len(values) > 1:
            breaches.append(f"pod {uid} was seen bound with the assignments {values}")
        breaches += [f"pod {uid}: assignment for another" for pod in bound if not _names_itself(pod)]
        unbound = [pod for pod in ours if not pod["spec"].get("nodeName")]
        breaches += [f"pod {uid} was seen assigned and not bound" for pod in unbound if assignment(pod)]
    return Verdict(2, "each pod is bound with its assignment, in one write", looked_at, tuple(breaches))


def _asks(pod: Object) -> bool:
    annotations = pod["metadata"].get("annotations", {})
    return names.REQUEST in annotations or names.RIT_REQUEST in annotations


def _names_itself(pod: Object) -> bool:
    decided = assignment(pod) or {}
    return (decided.get("uid"), decided.get("node")) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])


def exactly_applied(given: Sequence[VfInUse], views: Sequence[ContainerView], pods: Sequence[DemoPod]) -> Verdict:
    """Check that the netdev is in the pod with the assigned rates, and that containers see just their own devices."""
    breaches = [f"{vf.pod}: {vf.interface or vf.entry['pci']} is not in the pod" for vf in given if not vf.in_pod]
    breaches += [f"{vf.pod}: {vf.interface} has the rates {vf.rates}" for vf in given if vf.rates != _wished(vf)]
    entitled = {pod.name: pod.only for pod in pods}
    for view in views:
        own = {name for vf in given if vf.pod == view.pod for name in vf.own}
        others = entitled.get(view.pod) not in (None, view.name)
        wanted = set() if others or not own else own | _COMMON_DEVICES
        if view.devices != wanted:
            breaches.append(f"{view.pod}/{view.name} sees {sorted(view.devices)}, its own are {sorted(wanted)}")
    return Verdict(3, "VFs, rates and devices are those decided", len(given) + len(views), tuple(breaches))


def _wished(vf: VfInUse) -> tuple[int, int]:
    return vf.entry.get("min_tx_rate", 0), vf.entry.get("max_tx_rate", 0)


def untouched(pods: Mapping[str, Object], views: Sequence[ContainerView], plain: Sequence[str]) -> Verdict:
    seen = [view for view in views if view.pod in plain]
    breaches = [
        f"{view.pod}: has {sorted(view.devices)} {dict(view.variables)}"
        for view in seen
        if view.devices or view.variables
    ]
    breaches += [f"{name}: has an assignment" for name in plain if assignment(pods[name])]
    return Verdict(4, "a pod that asks for nothing is left alone", len(seen), tuple(breaches))


def given_back(before: Mapping[str, hosts.HostState], after: Mapping[str, hosts.HostState]) -> Verdict:
    breaches = []
    for node, original in before.items():
        for name in hosts.HostState.__slots__:
            was, now = getattr(original, name), getattr(after[node], name)
            if was != now:
                breaches.append(f"{node}: {name} was {was!r} and is {now!r}")
    return Verdict(
        5, "every VF is back in its original state", sum(len(s.links) for s in before.values()), tuple(breaches)
    )


def refused_by_name(
    api: Api, pods: Mapping[str, Object], refused: Sequence[DemoPod], denied: Mapping[str, str]
) -> Verdict:
    """Check that no bad request runs and each was refused in words; ``denied`` are the API server's, by pod."""
    breaches = []
    for pod in refused:
        messages = [event["message"] for event in api.events_of(pod.name)] + [denied.get(pod.name, "")]
        if pod.name in pods and is_running(pods[pod.name]):
            breaches.append(f"{pod.name} runs")
        if (pod.expect == "Denied") == (pod.name in pods):
            breaches.append(f"{pod.name}: whether the API server has it is not as expected")
        if not any(pod.says in message for message in messages):
            breaches.append(f"{pod.name}: nothing says {pod.says!r}: {messages}")
    return Verdict(6, "bad requests are refused, each with its reason", len(refused), tuple(breaches))


def undisturbed(before: Mapping[str, Object], after: Mapping[str, Object], killed: Sequence[str], late: str) -> Verdict:
    """Check after restarts that every pod runs as before with the same VFs, and that a new one starts."""
    running = [name for name, pod in before.items() if is_running(pod)]
    breaches = [f"{name} does not run any more" for name in running if not is_running(after[name])]
    breaches += [
        f"{name} has another assignment" for name in running if assignment(before[name]) != assignment(after[name])
    ]
    breaches += [] if is_running(after[late]) else [f"{late} does not run"]
    text = f"SIGKILL to {len(killed)} programs disturbs no pod"
    return Verdict(7, text, len(running) + 1, tuple(breaches))


def within_offer(nodes: Sequence[Object], given: Sequence[VfInUse]) -> Verdict:
    offers = {
        (node["metadata"]["name"], pf["name"]): pf["offer_mbps"]
        for node in nodes
        for pf in json.loads(node["metadata"]["annotations"][names.INVENTORY])["pfs"]
    }
    reserved: Counter[tuple[str, str]] = Counter()
    for vf in given:
        reserved[vf.node, vf.entry["pf"]] += vf.rates[0]
    breaches = [f"{key}: {reserved[key]} of {offers[key]} Mb/s" for key in reserved if reserved[key] > offers[key]]
    return Verdict(8, "no PF has more rates reserved than it offers", len(reserved), tuple(breaches))


def all_or_none(
    waiting: Mapping[str, Object], said: Mapping[str, str], after: Mapping[str, Object], ranks: Sequence[DemoPod]
) -> Verdict:
    """Check that no rank of a job had a node while one had no place, and that then all run; ``said`` is by event."""
    breaches = []
    for rank in ranks:
        bound, text = waiting[rank.name]["spec"].get("nodeName"), said.get(rank.name, "")
        breaches += [f"{rank.name} was bound to {bound} before all had a place"] if bound else []
        breaches += [] if rank.says in text else [f"{rank.name}: its event does not say {rank.says!r}: {text!r}"]
        breaches += [] if is_running(after[rank.name]) else [f"{rank.name} does not run though there is room for all"]
    return Verdict(9, "a job's ranks wait together and start together", len(ranks), tuple(breaches))
