"""The guarantees that hold whatever fails: checked at each Binding that the API server takes, and after each step.

A VF may be given twice only where nobody could know better: one of the two Bindings was written by a process that had
lost the lease, or somebody who is not our scheduler has just claimed the VF. That is a slip: the node's ledger refuses
the second pod, and the leader reports the dispute. Anything else is a violation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from devcluster.apiserver.objects import timestamp
from mooring import names
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.inventory import Inventory
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.cluster import PodState, cable_of
from tests.scheduler.simulation.faults import STALE_S
from tests.scheduler.simulation.schedulers import Decision, ordered

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World


class Written(NamedTuple):
    """Which process bound a pod or gave it a claim, when, and whether it led then; empty if none did."""

    process: str
    at: float
    led: bool


class Promises:
    """The witness: it sees every write, and knows what was decided, offered and led at each moment."""

    def __init__(self, world: World) -> None:
        self._world, self._cluster, self._loop, self._broken = world, world.cluster, world.loop, world.broken
        self.decisions: dict[str, list[Decision]] = defaultdict(list)
        self.leaders = [(0.0, "")]
        self.paused = set[str]()
        self.edited = dict[str, float]()
        self.slips = list[str]()
        self.met = Counter[str]()
        self._written = dict[str, Written]()
        self._offered: dict[str, list[tuple[float, Inventory]]] = defaultdict(list)

    @property
    def leader(self) -> str:
        return self.leaders[-1][1]

    def leads(self, process: str, for_s: float = 0.0) -> bool:
        """Return whether a process has led for so long, and has not stood still."""
        since, leader = self.leaders[-1]
        return leader == process and process not in self.paused and since + for_s <= self._loop.time()

    def offer(self, node: str) -> None:
        """Record what a node's hardware offers from now on."""
        self._offered[node].append((self._loop.time(), self._world.agents[node].hardware.inventory()))

    def decide(self, uid: str, made: Decision) -> None:
        """Record a scheduler's decision about a pod."""
        self.decisions[uid].append(made)

    def claim(self, uid: str) -> None:
        """Record that somebody who is not our scheduler has bound a pod, or has claimed VFs for it."""
        self._written[uid] = Written("", self._loop.time(), led=False)
        self._world.jobs.note_bound(uid)

    def see_lease(self, process: str, body: Json) -> None:
        self.leaders.append((self._loop.time(), process if body["spec"].get("holderIdentity") else ""))

    def see_binding(self, process: str, body: Json) -> None:
        uid, node = str(body["metadata"].get("uid")), body["target"]["name"]
        pod = self._cluster.pod(uid)
        self.met["binds"] += 1
        if pod is None:
            self._broken.append(f"a pod of another uid than {uid} was bound")
            return
        made = self._decision(process, pod, node)
        if made is None:
            self._broken.append(f"{pod.name} was bound by {process} to {node} as nobody had decided")
            return
        if not self._may_decide(made):
            self._broken.append(f"{made.process} decided about {pod.name} without leading")
        self._written[uid] = Written(process, self._loop.time(), led=self.leader == process)
        self._look_for_collisions(pod, made)
        known_since = timestamp(datetime.fromtimestamp(self._loop.wall() - STALE_S, UTC))
        wrongs = (*self._not_offered(pod, made), *self._world.storage.wrongs(pod, known_since))
        self._broken += [f"{pod.name}: {why}" for why in wrongs]
        self._world.jobs.see_binding(uid)

    def see_deletion(self, process: str, uid: str) -> None:
        """Check a deletion: only of a victim chosen while the scheduler led, for a pod of higher priority."""
        self.met["victims"] += 1
        made = next((one for one in self.decisions.get(ordered(uid), ()) if one.process == process), None)
        if made is None:
            self._broken.append(f"{process} deleted the pod of uid {uid} as nobody had decided")
        elif not self._may_decide(made):
            self._broken.append(f"{made.process} decided to delete the pod of uid {uid} without leading")
        elif not int(made.annotations["above"]) > int(made.annotations["below"]):
            self._broken.append(f"the pod of uid {uid} went for one that is not above it")

    def _may_decide(self, made: Decision) -> bool:
        """Return whether a process led when it decided; one that was paused could not know."""
        holder = next(holder for since, holder in reversed(self.leaders) if since <= made.at)
        return holder == made.process or made.process in self.paused

    def _decision(self, process: str, pod: PodState, node: str) -> Decision | None:
        for made in reversed(self.decisions.get(pod.uid, [])):
            same = all(pod.annotations.get(key) == value for key, value in made.annotations.items())
            if made.process == process and made.node == node and same:
                return made
        return None

    def _look_for_collisions(self, pod: PodState, made: Decision) -> None:
        for other in self._cluster.live():
            if other.uid != pod.uid and other.node == pod.node and (both := pod.held & other.held):
                theirs = self._written[other.uid]
                lately = theirs.at > made.at - STALE_S
                nobody_could_know = not self._written[pod.uid].led or (lately and not theirs.led)
                collision = f"{sorted(both)} of {pod.node}: {pod.name} after {other.name}"
                (self.slips if nobody_could_know else self._broken).append(collision)

    def _not_offered(self, pod: PodState, made: Decision) -> Iterator[str]:
        """Yield what a pod was given beyond what its node offered at any moment since shortly before the decision."""
        offers = self._offers(pod.node, made.at - STALE_S)
        for vf in pod.vfs:
            pfs = [pf for inventory in offers if (pf := inventory.pf(vf.pf)) is not None]
            if not any(vf.vf in pf.usable and pf.vf_pci(vf.vf) == vf.pci for pf in pfs):
                yield f"{vf.pci} was not on offer"
        yield from self.over_offer(pod, pod.vfs, self._loop.time() - made.at + STALE_S)

    def over_offer(self, pod: PodState, vfs: Iterable[AssignedVf], seconds: float) -> Iterator[str]:
        """Yield where more is reserved than these VFs' ports have offered at any moment of so many seconds."""
        offers = self._offers(pod.node, self._loop.time() - seconds)
        for vf in vfs:
            listed = [(pf.up, cable_of(one, pf)) for one in offers if (pf := one.pf(vf.pf)) is not None]
            names = {pf.name for _, cable in listed for pf in cable} | {vf.pf}
            reserved = sum(self.reserved_on(pod.node, name) for name in names)
            offered = max((min(pf.offer_mbps for pf in cable) for up, cable in listed if up), default=0)
            if vf.min_tx_rate and reserved > offered:
                yield f"{reserved} Mb/s are reserved on {vf.pf} of {pod.node}, more than it offers"

    def _offers(self, node: str, since: float) -> list[Inventory]:
        """Return the inventories that were valid at ``since`` or later."""
        history = self._offered[node]
        ended = [after for after, _ in history[1:]] + [float("inf")]
        return [inventory for (_, inventory), end in zip(history, ended, strict=True) if end >= since]

    def reserved_on(self, node: str, pf: str) -> int:
        """Return what the pods reserve that a leader has bound: no scheduler could have counted the others."""
        held = Counter[int]()
        for pod in self._cluster.live():
            if pod.node == node and self._written[pod.uid].led:
                for vf, mbps in zip(pod.vfs, self._world.rates.reserved(pod), strict=True):
                    held |= Counter({vf.vf: mbps} if vf.pf == pf else {})
        return held.total()

    def check(self) -> None:
        """Raise AssertionError if a pod is bound otherwise than was decided."""
        for pod in self._cluster.live():
            if process := self._written[pod.uid].process:
                self._check_assignment(pod, self._decision(process, pod, pod.node))

    def _check_assignment(self, pod: PodState, made: Decision | None) -> None:
        assert made is not None, f"{pod.name} is bound otherwise than was decided"
        if names.ASSIGNMENT in made.annotations:
            assert pod.claim is not None, f"{pod.name}: its assignment is not to be believed"
            assert len(pod.units) == pod.wanted_units, f"{pod.name} has of {pod.wanted_units} units {pod.units}"
        elif self.edited.get(pod.uid, 0.0) < made.at - STALE_S:
            # The request at the time of the decision counts.
            assert not pod.wanted_units, f"{pod.name} was bound without its units"
            assert pod.annotations.get(names.REQUEST, "[]") == "[]", f"{pod.name} was bound without its assignment"

    def disputes(self) -> dict[tuple[str, str], list[PodState]]:
        """Return what several live pods claim: the node, and a VF's PCI address or a unit."""
        claims: dict[tuple[str, str], list[PodState]] = defaultdict(list)
        for pod in self._cluster.live():
            for unit in sorted(pod.held):
                claims[pod.node, unit].append(pod)
        return {place: pods for place, pods in claims.items() if len(pods) > 1}
