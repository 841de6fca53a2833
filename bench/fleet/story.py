"""What happens to the fleet, one stage after the other; each raises AssertionError if a promise does not hold."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Protocol

from bench.fleet.agents import Agents, Desired
from bench.fleet.containerd import ContainerdFleet, ContainerdHost
from bench.fleet.host import SimulatedHost
from bench.fleet.load import Load
from devcluster.api import Api
from mooring.records.node_install import NodeInstall

_PODS = 3
_TICK_S = 0.05
# Seconds between two kills, until a killed agent is started again, and that a host is down; by this machine's clock.
_KILL_EVERY_S, _DOWN_S, _REBOOT_S = 0.7, (0.1, 2.0), 4.0
_WRONG_OFFER = '{"v": 1, "pfs": [{"network": "rail0", "no_such_field": 1}]}\n'


class Host(Protocol):
    """What a stage does to a host, and sees of it; ``large_disk`` is the size of a disk with room, in bytes."""

    @property
    def large_disk(self) -> int: ...
    @property
    def offer(self) -> str: ...
    def installation(self) -> NodeInstall | None: ...
    def has_begun(self) -> bool: ...
    def resize_disk(self, disk_bytes: int) -> None: ...
    def hand_over(self, offer: str) -> None: ...
    def hold_vfs(self, count: int) -> None: ...
    def release_vfs(self) -> None: ...
    def ledger(self) -> Mapping[str, tuple[str, int]]: ...
    def lost_pods(self) -> Sequence[str]: ...
    def kubelet_starts(self) -> int: ...
    def active_units(self) -> set[str]: ...
    def tree(self) -> Mapping[str, str]: ...


@dataclass(slots=True)
class Fleet:
    """The hosts and their agents; ``kills`` is how many of them each stage kills, ``stage_s`` its limit.

    ``pods`` are those of the hosts with containerd, to which then everything bad happens.
    """

    simulated: Mapping[str, SimulatedHost]
    agents: Agents
    api: Api
    random: Random
    kills: int
    desired: Desired
    stage_s: float
    pods: ContainerdFleet | None = None
    down: dict[str, float] = field(default_factory=dict)
    # The node whose disk is too small at first, that which reboots, that with a wrong offer, and one that is not Ready.
    broken: str = field(init=False)
    rebooted: str = field(init=False)
    misled: str = field(init=False)
    sick: str = field(init=False)
    _kills_left: int = 0
    _next_kill_s: float = 0.0

    def __post_init__(self) -> None:
        candidates = sorted(self.containerd) or sorted(self.simulated)
        self.broken, self.rebooted, self.misled = self.random.sample(candidates, 3)
        self.sick = self.random.choice(sorted(self.simulated.keys() - {self.broken}))

    @property
    def containerd(self) -> Mapping[str, ContainerdHost]:
        return {} if self.pods is None else self.pods.hosts

    @property
    def hosts(self) -> Mapping[str, Host]:
        return {**self.simulated, **self.containerd}

    def roll_out(self, desired: Desired) -> None:
        """Replace all agents, as the DaemonSet does with all its pods at once."""
        self.desired, self._kills_left = desired, self.kills
        if self.pods is not None:
            self.pods.roll_out(desired)
        for name, host in self.simulated.items():
            self.agents.kill(name)
            self.down.pop(name, None)
            self.agents.start(host, desired)

    def phases(self) -> Counter[str]:
        return Counter(self.phase(name) for name in self.hosts)

    def phase(self, name: str) -> str:
        """Return the phase of a node's installation, as its condition has it; that of another release is `old`."""
        wanted = self.desired.release if name in self.containerd else self.desired.image.release
        found = self.hosts[name].installation()
        return "old" if found is None or found.release != wanted else found.phase

    def why(self, name: str) -> str:
        """Return what a node's installation reports."""
        found = self.hosts[name].installation()
        return "not reported" if found is None else found.why

    def working(self) -> list[str]:
        return [name for name in self.hosts if self.phase(name) == "working"]

    def until(self, condition: Callable[[], bool], what: str, within_s: float | None = None) -> None:
        """Go on, with kills, until something holds."""
        within_s = within_s or self.stage_s
        end = time.monotonic() + within_s
        while not condition():
            seen = {name: (self.phase(name), self.why(name)) for name in self.hosts} if time.monotonic() > end else {}
            assert time.monotonic() < end, f"{what}: {seen} after {within_s:.0f} s"
            self._tick()

    def pause(self, seconds: float) -> None:
        """Go on for some seconds of the agents' clocks."""
        end = time.monotonic() + seconds / self.agents.speed
        self.until(lambda: time.monotonic() >= end, "a pause", seconds)

    def _tick(self) -> None:
        assert not (ended := self.agents.ended()), f"agents of {ended} ended"
        now_s = time.monotonic()
        for name in [name for name, until_s in self.down.items() if until_s <= now_s]:
            del self.down[name]
            self.agents.start(self.simulated[name], self.desired)
        if self._kills_left and now_s >= self._next_kill_s:
            self._next_kill_s = now_s + self.random.expovariate(1 / _KILL_EVERY_S)
            # Most meet a change of the host.
            names = self.working() if self.random.random() < 0.8 else list(self.hosts)
            if names := [name for name in names if name in self.agents.running or name in self.containerd]:
                self._kills_left -= 1
                self.take_down(self.random.choice(names), self.random.uniform(*_DOWN_S))
        time.sleep(_TICK_S)

    def take_down(self, name: str, seconds: float) -> None:
        """Kill a node's installer; it is back after some seconds, as soon as the kubelet restarts it in a pod."""
        if self.pods is not None and name in self.containerd:
            self.pods.kill(name, with_pod=self.random.random() < 0.5)
            return
        self.agents.kill(name)
        self.down[name] = time.monotonic() + seconds

    def reboot(self, name: str) -> None:
        if self.pods is not None and name in self.containerd:
            self.pods.cluster.reboot(name, lambda: time.sleep(_REBOOT_S))
            return
        self.take_down(name, _REBOOT_S)
        self.simulated[name].boot()

    def set_ready(self, name: str, status: str) -> None:
        """Let the node controller report whether a simulated node is Ready."""
        ready = {"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": "as the story wants it"}
        self.api.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})


def stages(fleet: Fleet, rollouts: Sequence[Desired]) -> Iterator[tuple[str, str]]:
    """Run one stage after the other; yield the name of each, and what was seen."""
    first, second = rollouts
    before = {name: host.tree() for name, host in fleet.hosts.items()}
    yield "install", _install(fleet, first)
    yield "upgrade", _upgrade(fleet, second, fleet.rebooted, fleet.misled)
    yield "return", _return(fleet, first)
    yield "remove", _remove(fleet, holding={fleet.broken, fleet.misled})
    after = {name: host.tree() for name, host in fleet.hosts.items()}
    left = {
        f"{name} {path}"
        for name, tree in after.items()
        for path in before[name].keys() | tree.keys()
        if before[name].get(path) != tree.get(path)
    }
    assert not left, f"left or changed: {sorted(left)[:20]}"
    running = {f"{name} {unit}" for name, host in fleet.hosts.items() for unit in host.active_units()}
    assert not running, f"units still active: {sorted(running)[:20]}"
    yield "compare", f"{sum(map(len, before.values()))} files, links and folders of {len(before)} hosts are as before"


def _install(fleet: Fleet, desired: Desired) -> str:
    """Install while one disk is full: its node's failure stops the rest until there is room.

    A node that is not Ready stops nobody, and is installed once it is.
    """
    broken, sick = fleet.broken, fleet.sick
    fleet.set_ready(sick, "False")
    fleet.roll_out(desired)
    fleet.until(lambda: fleet.phase(broken) == "failed", f"{broken} fails")
    fleet.until(lambda: not set(fleet.working()) - {broken}, "those that had begun end")
    fleet.pause(20)
    done, began = fleet.phases()["installed"], _begun(fleet, broken)
    failure = fleet.why(broken)
    fleet.pause(60)
    assert fleet.phases()["installed"] == done, "a node was installed after a failure"
    assert _begun(fleet, broken) == began, "a node was changed after a failure"
    fleet.hosts[broken].resize_disk(fleet.hosts[broken].large_disk)
    # A new agent tries at once.
    fleet.take_down(broken, 0)
    fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts) - 1, f"all but {sick} are installed")
    fleet.take_down(sick, 0)
    reason = f"node {sick!r} is not Ready: "
    fleet.until(lambda: fleet.why(sick).startswith(reason), f"{sick} reports that it is not Ready")
    assert sick not in _begun(fleet, broken), f"{sick} was changed"
    fleet.set_ready(sick, "True")
    fleet.take_down(sick, 0)
    fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are installed")
    return f"{broken} failed after {done} others ({failure}); all installed once it had room; {sick} was not Ready"


def _begun(fleet: Fleet, broken: str) -> set[str]:
    """Return the hosts on which anything has been changed; the broken one tries again and again."""
    return {name for name, host in fleet.hosts.items() if name != broken and host.has_begun()}


def _upgrade(fleet: Fleet, desired: Desired, rebooted: str, misled: str) -> str:
    """Upgrade hosts whose pods hold VFs, while one reboots and one has a wrong offer: no ledger is touched."""
    for host in fleet.hosts.values():
        host.hold_vfs(_PODS)
    held = _Held.of(fleet, {rebooted} if rebooted in fleet.containerd else set())
    fleet.hosts[misled].hand_over(_WRONG_OFFER)
    with Load(fleet.containerd, {rebooted}, fleet.random.random()) as load:
        fleet.roll_out(desired)
        fleet.until(lambda: rebooted in fleet.working(), f"{rebooted} is changed")
        fleet.reboot(rebooted)
        fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are upgraded")
    if rebooted in fleet.containerd:
        fleet.containerd[rebooted].await_held()
    seen = held.compare(fleet, "an upgrade")
    if misled in fleet.containerd:
        # Its upgrade has started init once more, with the last offer that was right.
        fleet.hosts[misled].hand_over(_WRONG_OFFER)
        fleet.containerd[misled].await_init()
        fleet.take_down(misled, 0)
    wrong = "mooring-init.service: "
    fleet.until(lambda: fleet.why(misled).startswith(wrong), f"{misled} reports the wrong offer", 120)
    remark = fleet.why(misled)
    fleet.until(
        lambda: not any(fleet.why(name) for name in fleet.hosts if name != misled), "the other nodes are ready", 120
    )
    fleet.hosts[misled].hand_over(fleet.hosts[misled].offer)
    if misled in fleet.containerd:
        fleet.containerd[misled].await_init()
    fleet.take_down(misled, 0)
    fleet.until(lambda: not fleet.why(misled), f"{misled} is ready")
    return f"{seen}; {misled}: {remark}{load.report()}"


def _return(fleet: Fleet, desired: Desired) -> str:
    """Go back to the first release with all VFs held."""
    held = _Held.of(fleet, ())
    with Load(fleet.containerd, (), fleet.random.random()) as load:
        fleet.roll_out(desired)
        fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are returned")
    return f"{held.compare(fleet, 'a return')}{load.report()}"


@dataclass(frozen=True, slots=True)
class _Held:
    """What an upgrade must not touch, and how often each kubelet had started before it.

    Hosts ``without`` are rebooted: their pods start again, and their kubelets once more.
    """

    ledgers: Mapping[str, Mapping[str, tuple[str, int]]]
    starts: Mapping[str, int]

    @classmethod
    def of(cls, fleet: Fleet, without: Collection[str]) -> "_Held":
        ledgers = {name: host.ledger() for name, host in fleet.hosts.items() if name not in without}
        return cls(ledgers, {name: host.kubelet_starts() + (name in without) for name, host in fleet.hosts.items()})

    def compare(self, fleet: Fleet, what: str) -> str:
        """Raise AssertionError if anything was touched; return what was held, and how many kubelets restarted."""
        assert {name: fleet.hosts[name].ledger() for name in self.ledgers} == self.ledgers, f"{what} changed a ledger"
        lost = {name: pods for name, host in fleet.hosts.items() if (pods := host.lost_pods())}
        assert not lost, f"{what} has ended pods: {lost}"
        restarts = {name: host.kubelet_starts() - self.starts[name] for name, host in fleet.hosts.items()}
        assert max(restarts.values()) <= 1, f"restarts of a kubelet: {restarts}"
        return f"{sum(map(len, self.ledgers.values()))} VFs held; restarts of kubelets: {sum(restarts.values())}"


def _remove(fleet: Fleet, holding: Collection[str]) -> str:
    """Remove all; hosts whose pods still have VFs wait for them, and keep the others from nothing."""
    for name, host in fleet.hosts.items():
        if name not in holding:
            host.release_vfs()
    fleet.roll_out(replace(fleet.desired, removes=True))
    fleet.until(lambda: fleet.phases()["removed"] == len(fleet.hosts) - len(holding), "all without pods are removed")
    for name in holding:
        fleet.until(partial(_waits, fleet, name), f"{name} waits for its pods")
        assert fleet.hosts[name].has_begun(), f"{name} was removed under its pods"
        fleet.hosts[name].release_vfs()
        fleet.take_down(name, 0)
    fleet.until(lambda: fleet.phases()["removed"] == len(fleet.hosts), "all are removed")
    return f"{len(holding)} waited for their pods"


def _waits(fleet: Fleet, name: str) -> bool:
    return fleet.why(name).startswith("waits until pods give back their VFs: default/")
