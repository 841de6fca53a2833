"""Users who change the rates of running pods, nodes that put them in force late or not at all, and what must hold.

At each moment a VF has no more than is reserved for it, by what the API says and by what the leader has in memory. A
leader raises nothing beyond what a port offers. In the end each edit is in force, or its pod says why not.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mooring import names
from mooring.annotations.rates import PodRates, RatesInForce, dump_rates_in_force
from mooring.annotations.request import VfRequest, read_request
from mooring.errors import AnnotationError
from tests.scheduler.simulation.actors import Action, Actors
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.cluster import CLASSES, PodState, cable_of
from tests.scheduler.simulation.faults import STALE_S
from tests.scheduler.simulation.kubelet import NodeAgent
from tests.scheduler.simulation.oracle import allocated, in_force, reserved_by

if TYPE_CHECKING:
    from tests.scheduler.simulation.world import World

_MOST_PODS = 10
_RATES = (0, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 95_000)


class Rates:
    """The witness of all changes of rates, and what the nodes do about them."""

    def __init__(self, world: "World") -> None:
        self._world, self._cluster, self._agents = world, world.cluster, world.agents
        # Without users who change rates no node says what is in force.
        self.is_on = False
        # Pods of which somebody has written rates who did not lead any more: nobody could count them.
        self.unled: set[str] = set()
        self._written: dict[str, PodRates] = {}
        # When a node went back to an earlier version, and what its pods reserved until then, with their rates.
        self._before: dict[str, tuple[float, dict[str, tuple[PodRates | None, tuple[int, ...]]]]] = {}
        self.met = Counter[str]()

    def see_status(self, process: str, body: Json) -> None:
        """Check a write of rates that the API server has carried out."""
        metadata = body.get("metadata") or {}
        if names.RATES not in (metadata.get("annotations") or {}):
            return
        pod = self._cluster.pod(str(metadata["uid"]))
        if pod is None or (rates := allocated(pod)) is None:
            self._world.broken.append(f"rates were written that are not to be believed: {metadata}")
            return
        self.met["written"] += 1
        known = self._written.get(pod.uid)
        was = tuple(one.min_tx_rate or 0 for one in known.rates) if known else [vf.min_tx_rate for vf in pod.vfs]
        self._written[pod.uid] = rates
        if self._world.promises.leader != process:
            self.unled.add(pod.uid)
            return
        raised = [
            vf for vf, one, before in zip(pod.vfs, rates.rates, was, strict=True) if before < (one.min_tx_rate or 0)
        ]
        self._world.broken += [f"{pod.name}: {why}" for why in self._world.promises.over_offer(pod, raised, STALE_S)]

    def reserved(self, pod: PodState) -> tuple[int, ...]:
        """Return what each VF of a pod reserves, by what the API says of it and of its node.

        A leader may learn late that a node has gone back to an earlier version; what is in force stays for so long.
        """
        rates = None if pod.uid in self.unled else allocated(pod)
        reserved = reserved_by(pod, rates, self._node(pod))
        at, before = self._before.get(pod.node, (float("-inf"), {}))
        rates_before, reserved_before = before.get(pod.uid, (None, ()))
        if self._world.loop.time() - at > STALE_S or rates is None or rates != rates_before:
            return reserved
        return tuple(map(min, reserved, reserved_before))

    def _node(self, pod: PodState) -> Json:
        return self._cluster.nodes().get(pod.node, {})

    def check(self) -> None:
        """Raise AssertionError if a VF has more than is reserved for it."""
        if not self.is_on:
            return
        for pod in self._cluster.live():
            self._compare(pod, reserved_by(pod, allocated(pod), self._node(pod)), "the API")
            for scheduler in self._world.slots.values():
                # It knows by now what there is.
                if scheduler.machine is None or not self._world.promises.leads(scheduler.name, STALE_S):
                    continue
                assigned = scheduler.machine.cache.assigned(pod.uid)
                if assigned is not None and assigned.assignment == pod.claim:
                    self._compare(pod, assigned.reserved, scheduler.name)

    def _compare(self, pod: PodState, reserved: Sequence[int], who: str) -> None:
        agent = self._agents.get(pod.node)
        for vf, rate in zip(pod.vfs, reserved, strict=True):
            uid, has = agent.ledger.get(vf.pci, ("", vf)) if agent is not None else ("", vf)
            if uid == pod.uid:
                assert has.min_tx_rate <= rate, (
                    f"{vf.pci} of {pod.name} on {pod.node} has {has.min_tx_rate} Mb/s, {who} reserves {rate}"
                )

    def publish(self, name: str) -> None:
        """Let a node's advertiser say what is in force, by what lies on its disk."""
        if self._agents[name].hardware.rates and name in self._cluster.nodes():
            text = dump_rates_in_force(RatesInForce(self._agents[name].in_force()))
            self._cluster.patch_node(name, {"metadata": {"annotations": {names.RATES_IN_FORCE: text}}})

    def go_forward(self, name: str) -> bool:
        """Let a node have programs that change rates; return whether it says so.

        It does once what it has recorded is in force again, and it has said that.
        """
        agent = self._agents[name]
        agent.knows_rates = True
        agent.apply_rates({})
        if agent.rates.keys() - agent.in_force().keys():
            return False
        agent.hardware.rates = True
        self.publish(name)
        self._world.tell(name)
        return True

    def go_back(self, name: str) -> None:
        """Let a node have programs of an earlier version: what is said to be in force stays."""
        pods = [pod for pod in self._cluster.live() if pod.node == name]
        before = {pod.uid: (allocated(pod), self.reserved(pod)) for pod in pods}
        self._before[name] = (self._world.loop.time(), before)
        self._agents[name].hardware.rates = False
        self._world.tell(name)
        self.met["went back"] += 1

    def work(self) -> None:
        """Let all nodes do what is to be done."""
        for name, agent in self._agents.items() if self.is_on else ():
            agent.refuses_rates = False
            if not agent.hardware.rates:
                self.go_forward(name)
            agent.apply_rates({pod.uid: rates for pod in self._cluster.live() if (rates := allocated(pod))})
            self.publish(name)

    def unsettled(self) -> Iterator[str]:
        """Yield what is not yet as it must be in the end."""
        nodes = self._cluster.nodes() if self.is_on else {}
        for pod in self._cluster.live():
            if pod.is_ours and pod.vfs and not pod.is_going and pod.node in nodes and (why := self._open(pod)):
                yield f"{pod.name} of {pod.node}: {why}"

    def _open(self, pod: PodState) -> str:
        wanted, condition = _wanted(pod), pod.condition("MooringRates").get("reason", "")
        rates = allocated(pod)
        settings = rates.rates if rates else [vf.settings for vf in pod.vfs]
        given = [(one.min_tx_rate, one.max_tx_rate) for one in settings]
        if wanted is None:
            return "" if condition == "Refused" else f"a change that is none of rates is {condition or 'not told'}"
        if wanted == given:
            settled = rates is None or (in_force(pod, self._node(pod)) == rates.generation and condition == "InForce")
            return "" if settled and condition in ("", "InForce") else f"its rates are {condition or 'not told'}"
        if condition not in ("Deferred", "Infeasible"):
            return f"an edit is {condition or 'not told'}"
        self.met[condition] += 1
        return "an edit waits, and fits" if self._fits(pod, [low or 0 for low, _ in wanted]) else ""

    def _fits(self, pod: PodState, wanted: Sequence[int]) -> bool:
        """Return whether the rates fit beside those of the others, independently of the scheduler."""
        inventory = self._agents[pod.node].hardware.inventory()
        reserved = reserved_by(pod, allocated(pod), self._node(pod))
        more = [(vf.pf, max(want - now, 0)) for vf, want, now in zip(pod.vfs, wanted, reserved, strict=True)]
        for pf in inventory.pfs:
            cable = {one.name: one.offer_mbps for one in cable_of(inventory, pf)}
            held = sum(self._world.promises.reserved_on(pod.node, name) for name in cable)
            together = held + sum(mbps for name, mbps in more if name in cable)
            if any(mbps for name, mbps in more if name == pf.name) and (together > min(cable.values()) or not pf.up):
                return False
        return True


def _wanted(pod: PodState) -> list[tuple[int | None, int | None]] | None:
    """Return the rates that a pod asks for; None if it asks for another change."""
    try:
        request = read_request({names.REQUEST: pod.annotations.get(names.REQUEST, "[]")})
    except AnnotationError:
        return None
    interfaces: tuple[VfRequest, ...] = request.interfaces if request is not None else ()
    same = len(interfaces) == len(pod.vfs) and all(
        one.settings.vlan == vf.settings.vlan for one, vf in zip(interfaces, pod.vfs, strict=True)
    )
    return [(one.settings.min_tx_rate, one.settings.max_tx_rate) for one in interfaces] if same else None


class RateEdits(Actors):
    """Users, nodes and operators of a cluster where rates change all the time."""

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        world.rates.is_on = True
        for name in world.agents:
            world.rates.go_forward(name)
        # Nodes that went back to an earlier version, since when.
        self._went_back: dict[str, float] = {}
        # Those of them of which all programs have been of that version.
        self._older: set[str] = set()

    def weights(self) -> Mapping[Action, int]:
        return {
            self._create: 80,
            self._on_pod(_runs_with_vfs, self._edit): 240,
            self._on_pod(_runs_with_vfs, self._edit_otherwise): 10,
            **self._deletions(20, by_force=5),
            self._sync_node: 160,
            self._apply: 160,
            lambda: self._world.rates.publish(self._node()): 160,
            lambda: self._toggle("refuses_rates"): 10,
            self._change_hardware: 10,
            lambda: self._reboot(self._agent()): 4,
            self._go_back: 20,
            self._go_forward: 20,
            **self._outages(kill=4, stop=2, freeze=2, thaw=20, cut_off=6),
            self._world.api.cut_watches: 10,
        }

    def _create(self) -> None:
        if len(self._cluster.pods()) < _MOST_PODS:
            rates = [{"min_tx_rate": self._source.choice(_RATES[:4])} for _ in range(self._source.choice((1, 1, 2)))]
            spec = {"priorityClassName": self._source.choice(CLASSES)} if self._source.random() < 0.1 else {}
            self._cluster.create_pod(json.dumps(rates), spec=spec)

    def _edit(self, pod: PodState) -> None:
        rates = [{"min_tx_rate": self._source.choice(_RATES)} | self._max_rate() for _ in pod.vfs]
        self._request(pod, json.dumps(rates))

    def _max_rate(self) -> dict[str, int]:
        return {"max_tx_rate": 95_000} if self._source.random() < 0.3 else {}

    def _edit_otherwise(self, pod: PodState) -> None:
        text = self._source.choice(("[", "[{},{},{},{}]", json.dumps([{"vlan": 5}] * len(pod.vfs))))
        self._cluster.annotate(pod, names.REQUEST, text)

    def _go_back(self) -> None:
        """Let an advertiser go back to a version that knows no changed rates, where a pod has lowered its own."""
        name = self._node()
        given = {vf.pci: vf.min_tx_rate for pod in self._cluster.live() for vf in pod.vfs if pod.node == name}
        ledger = self._world.agents[name].ledger.items()
        if name not in self._went_back and any(vf.min_tx_rate < given.get(pci, 0) for pci, (_, vf) in ledger):
            self._went_back[name] = self._world.loop.time()
            self._world.rates.go_back(name)

    def _go_forward(self) -> None:
        """Let a node's other programs go back too, once the scheduler has seen that its advertiser has.

        A boot makes all sandboxes again, with the assignment's rates. Later the node has programs that change rates.
        """
        late = [name for name, since in self._went_back.items() if since + STALE_S < self._world.loop.time()]
        for name in sorted(late)[:1]:
            agent = self._world.agents[name]
            if name not in self._older:
                self._older.add(name)
                agent.knows_rates = False
                self._reboot(agent)
                agent.sync()
            elif self._world.rates.go_forward(name):
                self._older.remove(name)
                del self._went_back[name]

    def _apply(self) -> None:
        """Let a node read its pods and put in force what it reads; it may be killed after any step."""
        agent = self._agent()
        if agent.hardware.rates:
            live = [pod for pod in self._cluster.live() if pod.node == agent.name]
            pods = {pod.uid: rates for pod in live if (rates := allocated(pod))}
            agent.apply_rates(pods, self._source.choice((0, 1, 2, 3, 100, 100)))

    def _reboot(self, agent: NodeAgent) -> None:
        """Let a node lose all that a boot does not survive; the kubelet makes the sandboxes of its pods again."""
        agent.reboot(f"{agent.hardware.boot}+")
        self._world.tell(agent.name)
        for pod in self._cluster.live():
            if pod.node == agent.name and pod.phase == "Running":
                self._cluster.patch_pod(pod.name, {"status": {"phase": "Pending"}}, "/status")


def _runs_with_vfs(pod: PodState) -> bool:
    return bool(pod.vfs) and pod.is_live
