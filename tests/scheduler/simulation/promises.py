"""The guarantees that hold whatever fails: checked at each Binding that the API server takes, and after each step.

A VF may be given twice only where nobody could know better: one of the two Bindings was written by a process that had
lost the lease, or somebody who is not our scheduler has just claimed the VF. That is a slip: the node's ledger refuses
the second pod, and the leader reports the dispute. Anything else is a violation.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from devcluster.apiserver.formats import protobuf
from devcluster.apiserver.objects import timestamp
from mooring import names
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.inventory import Inventory
from tests.scheduler.simulation.clock import VirtualLoop
from tests.scheduler.simulation.cluster import Cluster, PodState, on_cable
from tests.scheduler.simulation.http import Request
from tests.scheduler.simulation.jobs import Jobs
from tests.scheduler.simulation.kubelet import NodeAgent
from tests.scheduler.simulation.schedulers import Decision, ordered
from tests.scheduler.simulation.storage import Storage

# How long, in seconds, a scheduler may not know of a change: its watch is late, torn, and listed again with backoff.
STALE_S = 45.0


@dataclass(frozen=True, slots=True)
class Written:
    """Which process bound a pod or gave it a claim, when, and whether it led then; empty if none did."""

    process: str
    at: float
    led: bool


@dataclass
class Promises:
    """The witness: it sees every write, and knows what was decided, offered and led at each moment."""

    loop: VirtualLoop
    cluster: Cluster
    agents: dict[str, NodeAgent]
    storage: Storage
    jobs: Jobs
    decisions: dict[str, list[Decision]] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    offered: dict[str, list[tuple[float, Inventory]]] = field(default_factory=dict)
    leaders: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, "")])
    paused: set[str] = field(default_factory=set)
    edited: dict[str, float] = field(default_factory=dict)
    slips: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    # What each VF of a pod reserves, where its rates have changed.
    reserved: Callable[[PodState], tuple[int, ...]] = lambda pod: tuple(vf.min_tx_rate for vf in pod.vfs)
    binds: int = 0
    preempted: int = 0

    @property
    def leader(self) -> str:
        return self.leaders[-1][1]

    def led(self, process: str, at: float) -> bool:
        """Return whether the lease was this process's at a moment."""
        return next(holder for since, holder in reversed(self.leaders) if since <= at) == process

    def offer(self, node: str) -> None:
        """Record what a node's hardware offers from now on."""
        self.offered.setdefault(node, []).append((self.loop.time(), self.agents[node].hardware.inventory()))

    def decide(self, uid: str, made: Decision) -> None:
        """Record a scheduler's decision about a pod."""
        self.decisions.setdefault(uid, []).append(made)

    def claim(self, uid: str) -> None:
        """Record that somebody who is not our scheduler has bound a pod, or has claimed VFs for it."""
        self.written[uid] = Written("", self.loop.time(), led=False)
        if (job := self.jobs.of(uid)) is not None:
            self.jobs.note_bound(job)

    def see(self, request: Request) -> None:
        """Record a scheduler's write that the API server has carried out."""
        if request.path.endswith("/binding"):
            self._see_binding(request)
        elif request.method == "DELETE":
            self._see_deletion(request)
        elif "/leases" in request.path:
            holder = msgspec.json.decode(request.body)["spec"].get("holderIdentity")
            self.leaders.append((self.loop.time(), request.process if holder else ""))

    def _see_binding(self, request: Request) -> None:
        body = protobuf.decode(request.body)
        assert body is not None, "a Binding is not read"
        uid, node = str(body["metadata"].get("uid")), body["target"]["name"]
        pod = self.cluster.pod(uid)
        self.binds += 1
        if pod is None:
            self.broken.append(f"a pod of another uid than {uid} was bound")
            return
        made = self._decision(request.process, pod, node)
        if made is None:
            self.broken.append(f"{pod.name} was bound by {request.process} to {node} as nobody had decided")
            return
        if not self.led(made.process, made.at) and made.process not in self.paused:
            self.broken.append(f"{made.process} decided about {pod.name} without leading")
        self.written[uid] = Written(request.process, self.loop.time(), led=self.leader == request.process)
        self._look_for_collisions(pod, made)
        self.broken += [f"{pod.name}: {why}" for why in self._not_offered(pod, made)]
        known_since = timestamp(datetime.fromtimestamp(self.loop.wall() - STALE_S, UTC))
        self.broken += [f"{pod.name}: {why}" for why in self.storage.wrongs(pod, known_since)]
        self.jobs.see_binding(uid)

    def _see_deletion(self, request: Request) -> None:
        """Check a deletion: only of a victim chosen while the scheduler led, for a pod of higher priority."""
        self.preempted += 1
        uid = str(msgspec.json.decode(request.body)["preconditions"]["uid"])
        made = next((one for one in self.decisions.get(ordered(uid), ()) if one.process == request.process), None)
        if made is None:
            self.broken.append(f"{request.process} deleted the pod of uid {uid} as nobody had decided")
        elif not self.led(made.process, made.at) and made.process not in self.paused:
            self.broken.append(f"{made.process} decided to delete the pod of uid {uid} without leading")
        elif not int(made.annotations["above"]) > int(made.annotations["below"]):
            self.broken.append(f"the pod of uid {uid} went for one that is not above it")

    def _decision(self, process: str, pod: PodState, node: str) -> Decision | None:
        for made in reversed(self.decisions.get(pod.uid, [])):
            same = all(pod.annotations.get(key) == value for key, value in made.annotations.items())
            if made.process == process and made.node == node and same:
                return made
        return None

    def _look_for_collisions(self, pod: PodState, made: Decision) -> None:
        for other in self.cluster.live():
            if other.uid != pod.uid and other.node == pod.node and (both := pod.held & other.held):
                collision = f"{sorted(both)} of {pod.node}: {pod.name} after {other.name}"
                sanctioned = self._nobody_could_know(pod, made, other)
                (self.slips if sanctioned else self.broken).append(collision)

    def _nobody_could_know(self, pod: PodState, made: Decision, other: PodState) -> bool:
        theirs = self.written[other.uid]
        lately = theirs.at > made.at - STALE_S
        return not self.written[pod.uid].led or (lately and not theirs.led)

    def _not_offered(self, pod: PodState, made: Decision) -> Iterator[str]:
        """Yield what a pod was given beyond what its node offered at any moment since shortly before the decision."""
        offers = self._offers(pod.node, made.at - STALE_S)
        for vf in pod.vfs:
            pfs = [pf for inventory in offers if (pf := inventory.pf(vf.pf)) is not None]
            if not any(vf.vf in pf.usable and pf.vf_pci(vf.vf) == vf.pci for pf in pfs):
                yield f"{vf.pci} was not on offer"
        yield from self.over_offer(pod, pod.vfs, self.loop.time() - made.at + STALE_S)

    def over_offer(self, pod: PodState, vfs: Iterable[AssignedVf], seconds: float) -> Iterator[str]:
        """Yield where more is reserved than these VFs' ports have offered at any moment of so many seconds."""
        offers = self._offers(pod.node, self.loop.time() - seconds)
        for vf in vfs:
            listed = [(inventory, pf) for inventory in offers if (pf := inventory.pf(vf.pf)) is not None]
            cables = [on_cable(inventory, pf) for inventory, pf in listed if pf.up]
            names = {other.name for inventory, pf in listed for other in on_cable(inventory, pf)} | {vf.pf}
            reserved = sum(self.reserved_on(pod.node, name) for name in names)
            if vf.min_tx_rate and reserved > max((min(pf.offer_mbps for pf in cable) for cable in cables), default=0):
                yield f"{reserved} Mb/s are reserved on {vf.pf} of {pod.node}, more than it offers"

    def _offers(self, node: str, since: float) -> list[Inventory]:
        """Return the inventories that were valid at ``since`` or later."""
        history = self.offered.get(node, [])
        ended = [after for after, _ in history[1:]] + [float("inf")]
        return [inventory for (_, inventory), end in zip(history, ended, strict=True) if end >= since]

    def reserved_on(self, node: str, pf: str) -> int:
        """Return what the pods reserve that a leader has bound: no scheduler could have counted the others."""
        held: dict[int, int] = {}
        for pod in self.cluster.live():
            if pod.node == node and self.written[pod.uid].led:
                for vf, rate in zip(pod.vfs, self.reserved(pod), strict=True):
                    if vf.pf == pf:
                        held[vf.vf] = max(held.get(vf.vf, 0), rate)
        return sum(held.values())

    def check(self) -> None:
        """Raise AssertionError if a guarantee is violated."""
        assert not self.broken, "; ".join(self.broken)
        assert not self.jobs.broken, "; ".join(self.jobs.broken)
        for pod in self.cluster.live():
            if self.written[pod.uid].process:
                self._check_assignment(pod)
        for agent in self.agents.values():
            self._check_ledger(agent)

    def _check_assignment(self, pod: PodState) -> None:
        made = self._decision(self.written[pod.uid].process, pod, pod.node)
        assert made is not None, f"{pod.name} is bound otherwise than was decided"
        if names.ASSIGNMENT in made.annotations:
            assert pod.claim is not None, f"{pod.name}: its assignment is not to be believed"
            assert len(pod.units) == pod.wanted_units, f"{pod.name} has of {pod.wanted_units} units {pod.units}"
        elif self.edited.get(pod.uid, 0.0) < made.at - STALE_S:
            # The request at the time of the decision counts.
            assert not pod.wanted_units, f"{pod.name} was bound without its units"
            assert pod.annotations.get(names.REQUEST, "[]") == "[]", f"{pod.name} was bound without its assignment"

    def _check_ledger(self, agent: NodeAgent) -> None:
        for pf in agent.hardware.inventory().pfs:
            names = {other.name for other in on_cable(agent.hardware.inventory(), pf)}
            reserved = sum(vf.min_tx_rate for _, vf in agent.ledger.values() if vf.pf in names)
            assert reserved <= pf.mbps, f"{agent.name}: {reserved} Mb/s run on {pf.name} of {pf.mbps}"

    def disputes(self) -> dict[tuple[str, str], list[PodState]]:
        """Return what several live pods claim: the node, and a VF's PCI address or a unit."""
        claims: dict[tuple[str, str], list[PodState]] = {}
        for pod in self.cluster.live():
            for unit in sorted(pod.held):
                claims.setdefault((pod.node, unit), []).append(pod)
        return {place: pods for place, pods in claims.items() if len(pods) > 1}
