"""The nodes of the simulated cluster: what their kubelets start, and the ledger that gives no VF twice."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mooring import names
from mooring.annotations.assignment import AssignedVf
from mooring.annotations.rates import PodRates, with_rates
from tests.scheduler.simulation.cluster import Cluster, Hardware, PodState, cable_of


@dataclass
class NodeAgent:
    """One node: its hardware, and which pod holds which VF there, by PCI address."""

    name: str
    cluster: Cluster
    hardware: Hardware = field(default_factory=Hardware)
    ledger: dict[str, tuple[str, AssignedVf]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    # Its kubelet starts and stops nothing.
    hangs: bool = False
    # It does not release the VFs of deleted pods; its advertiser lists them as held, and ``tell`` publishes that.
    keeps: bool = False
    tell: Callable[[], None] = lambda: None
    # Changed rates, by pod uid: they survive a boot.
    rates: dict[str, PodRates] = field(default_factory=dict)
    # Its programs know changed rates; those of an earlier version set the assignment's.
    knows_rates: bool = True
    # Its NIC raises no rate.
    refuses_rates: bool = False

    def sync(self) -> None:
        """Do one sync of a kubelet: start, stop, and release what deleted pods have left."""
        if self.hangs or self.name not in self.cluster.nodes():
            return
        mine = {pod.uid: pod for pod in self.cluster.pods() if pod.node == self.name}
        self.give_back({uid for uid, _ in self.ledger.values()} - mine.keys())
        for pod in mine.values():
            if pod.is_going:
                self.give_back({pod.uid})
                self.cluster.delete_pod(pod.name, 0)
            elif pod.phase == "Pending":
                self._start(pod)

    def give_back(self, uids: set[str]) -> None:
        before, theirs = dict(self.hardware.held), [held for held in self.ledger.values() if held[0] in uids]
        if self.keeps:
            self.hardware.held |= {(vf.pf, vf.vf): (uid, vf.min_tx_rate) for uid, vf in theirs}
        else:
            self.ledger = {pci: held for pci, held in self.ledger.items() if held[0] not in uids}
            self.hardware.held = {vf: held for vf, held in before.items() if held[0] not in uids}
        if self.hardware.held != before:
            self.tell()

    def end(self, pod: PodState, phase: str = "Succeeded") -> None:
        """Let a pod's containers end."""
        self.give_back({pod.uid})
        self._put_phase(
            pod, phase, ready=False, state={"terminated": {"exitCode": 0, "finishedAt": self.cluster.now()}}
        )

    def reboot(self, boot: str) -> None:
        """Forget everything that a boot does not survive."""
        self.hardware.boot = boot
        self.hardware.held = {}
        self.ledger.clear()

    def apply_rates(self, pods: Mapping[str, PodRates], steps: int = 100) -> None:
        """Take over rates of a later generation, lower what is lowered and then raise; stop after so many steps."""
        for uid, rates in pods.items():
            if rates.node == self.name and (uid not in self.rates or rates.generation > self.rates[uid].generation):
                self.rates[uid] = rates
        self.rates = {uid: one for uid, one in self.rates.items() if self.cluster.pod(uid) is not None}
        changes = sorted(self._changes(), key=lambda change: change[1].min_tx_rate > self._rate(change[0]))
        for pci, vf in changes[:steps]:
            if vf.min_tx_rate <= self._rate(pci) or (not self.refuses_rates and not self.over([vf], {pci})):
                self.ledger[pci] = self.ledger[pci][0], vf

    def _rate(self, pci: str) -> int:
        return self.ledger[pci][1].min_tx_rate

    def _changes(self) -> Iterator[tuple[str, AssignedVf]]:
        """Yield the VFs that have not the rates that they should have, as they should be."""
        for pci, (uid, vf) in self.ledger.items():
            pod, rates = self.cluster.pod(uid), self.rates.get(uid)
            if pod is not None and pod.claim is not None and rates is not None:
                wanted = next(one for one in with_rates(pod.claim, rates).vfs if one.pci == pci)
                if wanted != vf:
                    yield pci, wanted

    def in_force(self) -> dict[str, int]:
        """Return the generation of each pod all of whose VFs have its rates."""
        late = {self.ledger[pci][0] for pci, _ in self._changes()}
        return {uid: rates.generation for uid, rates in self.rates.items() if uid not in late}

    def _vfs(self, pod: PodState) -> tuple[AssignedVf, ...]:
        """Return a pod's VFs with the rates to set."""
        rates = self.rates.get(pod.uid) if self.knows_rates else None
        return pod.vfs if pod.claim is None or rates is None else with_rates(pod.claim, rates).vfs

    def _start(self, pod: PodState) -> None:
        """Start a pod, or refuse it with a reason."""
        reason = self._refusal(pod)
        if reason:
            self.refused[pod.uid] = reason
            return
        self.ledger |= {vf.pci: (pod.uid, vf) for vf in self._vfs(pod)}
        self._put_phase(pod, "Running", ready=True, started=True, state={"running": {}})

    def _put_phase(self, pod: PodState, phase: str, **container: object) -> None:
        status = {"phase": phase, "containerStatuses": [{"name": "c", **container}]}
        self.cluster.patch_pod(pod.name, {"status": status}, "/status")

    def _refusal(self, pod: PodState) -> str:
        if not pod.vfs and pod.annotations.get(names.REQUEST, "[]") != "[]":
            return "no assignment that can be believed"
        known = {pf.vf_pci(vf) for pf in self.hardware.inventory().pfs for vf in pf.vfs}
        for vf in pod.vfs:
            if vf.pci not in known:
                return f"{vf.pci} does not exist"
            if self.ledger.get(vf.pci, (pod.uid, vf))[0] != pod.uid:
                return f"{vf.pci} is held by pod {self.ledger[vf.pci][0]}"
        return self.over(self._vfs(pod), {vf.pci for vf in pod.vfs})

    def over(self, vfs: Iterable[AssignedVf], instead: Container[str]) -> str:
        """Return why these VFs' rates are too much beside those of all others; ``instead`` of what they have now."""
        inventory = self.hardware.inventory()
        every = [*(vf for pci, (_, vf) in self.ledger.items() if pci not in instead), *vfs]
        for pf in inventory.pfs:
            names = {other.name for other in cable_of(inventory, pf)}
            if sum(vf.min_tx_rate for vf in every if vf.pf in names) > pf.mbps:
                return f"the reserved rates exceed the line rate of {pf.name}"
        return ""
