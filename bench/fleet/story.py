"""What happens to the fleet, one stage after the other; each raises AssertionError if a promise does not hold."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from bench.fleet.agents import SPEED, Agents, Desired
from bench.fleet.host import SimulatedHost
from cli.node.fleet.runtime import Runtime

# Of a disk on which a release does not fit, and of one on which several do.
SMALL_DISK, LARGE_DISK = 128 << 10, 64 << 20
_PODS = 3
_TICK_S = 0.05
# Seconds between two kills, until a killed agent is started again, and that a host is down; by this machine's clock.
_KILL_EVERY_S, _DOWN_S, _REBOOT_S = 0.7, (0.1, 2.0), 4.0
# No stage may take longer than this, by this machine's clock.
_STAGE_S = 600.0
_WRONG_OFFER = '{"v": 1, "pfs": [{"network": "rail0", "no_such_field": 1}]}\n'
_RIGHT_OFFER = '{"v": 1, "pfs": []}\n'


@dataclass(slots=True)
class Fleet:
    """The hosts and their agents; ``kills`` is how many of them each stage kills."""

    hosts: Mapping[str, SimulatedHost]
    agents: Agents
    random: Random
    kills: int
    desired: Desired
    down: dict[str, float] = field(default_factory=dict)
    # The node whose disk is too small at first, that which reboots, and that with a wrong offer.
    broken: str = field(init=False)
    rebooted: str = field(init=False)
    misled: str = field(init=False)
    _kills_left: int = 0
    _next_kill_s: float = 0.0

    def __post_init__(self) -> None:
        self.broken, self.rebooted, self.misled = self.random.sample(sorted(self.hosts), 3)

    def roll_out(self, desired: Desired) -> None:
        """Replace all agents, as the DaemonSet does with all its pods at once."""
        self.desired, self._kills_left = desired, self.kills
        for name, host in self.hosts.items():
            self.agents.kill(name)
            self.down.pop(name, None)
            self.agents.start(host, desired)

    def phases(self) -> Counter[str]:
        return Counter(self.phase(name) for name in self.hosts)

    def phase(self, name: str) -> str:
        """Return the phase of a node's installation, as its condition has it; that of another release is `old`."""
        found = self.hosts[name].installation()
        return "old" if found is None or found.release != self.desired.image.release else found.phase

    def working(self) -> list[str]:
        return [name for name in self.hosts if self.phase(name) == "working"]

    def until(self, condition: Callable[[], bool], what: str, within_s: float = _STAGE_S) -> None:
        """Go on, with kills, until something holds."""
        end = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end, f"{what}: {dict(self.phases())} after {within_s:.0f} s"
            self._tick()

    def pause(self, seconds: float) -> None:
        """Go on for some seconds of the agents' clocks."""
        end = time.monotonic() + seconds / SPEED
        self.until(lambda: time.monotonic() >= end, "a pause", seconds)

    def _tick(self) -> None:
        assert not (ended := self.agents.ended()), f"agents of {ended} ended"
        now_s = time.monotonic()
        for name in [name for name, until_s in self.down.items() if until_s <= now_s]:
            del self.down[name]
            self.agents.start(self.hosts[name], self.desired)
        if self._kills_left and now_s >= self._next_kill_s:
            self._next_kill_s = now_s + self.random.expovariate(1 / _KILL_EVERY_S)
            # Most meet a change of the host.
            names = self.working() if self.random.random() < 0.8 else list(self.hosts)
            if names := [name for name in names if name in self.agents.running]:
                self._kills_left -= 1
                self.take_down(self.random.choice(names), self.random.uniform(*_DOWN_S))
        time.sleep(_TICK_S)

    def take_down(self, name: str, seconds: float) -> None:
        self.agents.kill(name)
        self.down[name] = time.monotonic() + seconds


def stages(fleet: Fleet, images: Sequence[Runtime]) -> Iterator[tuple[str, str]]:
    """Run one stage after the other; yield the name of each, and what was seen."""
    before = {name: host.tree() for name, host in fleet.hosts.items()}
    yield "install", _install(fleet, images[0], fleet.broken)
    yield "upgrade", _upgrade(fleet, images[1], fleet.rebooted, fleet.misled)
    yield "return", _return(fleet, images[0])
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


def _install(fleet: Fleet, image: Runtime, broken: str) -> str:
    """Install while one disk is full: its node's failure stops the rest until there is room."""
    fleet.roll_out(Desired(image, fleet.desired.at_once))
    fleet.until(lambda: fleet.phase(broken) == "failed", f"{broken} fails")
    fleet.until(lambda: not set(fleet.working()) - {broken}, "those that had begun end")
    fleet.pause(20)
    done, began = fleet.phases()["installed"], _begun(fleet, broken)
    failure = (found := fleet.hosts[broken].installation()) is not None and found.why
    fleet.pause(60)
    assert fleet.phases()["installed"] == done, "a node was installed after a failure"
    assert _begun(fleet, broken) == began, "a node was changed after a failure"
    fleet.hosts[broken].resize_disk(LARGE_DISK)
    fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are installed")
    return f"{broken} failed after {done} others ({failure}); all installed once it had room"


def _begun(fleet: Fleet, broken: str) -> set[str]:
    """Return the hosts on which anything has been changed; the broken one tries again and again."""
    return {name for name, host in fleet.hosts.items() if name != broken and (host.root / "var/lib/mooring").exists()}


def _upgrade(fleet: Fleet, image: Runtime, rebooted: str, misled: str) -> str:
    """Upgrade hosts whose pods hold VFs, while one reboots and one has a wrong offer: no ledger is touched."""
    for host in fleet.hosts.values():
        host.hold_vfs(_PODS)
    fleet.hosts[misled].hand_over(_WRONG_OFFER)
    ledgers = {name: host.ledger() for name, host in fleet.hosts.items()}
    calls = {name: len(host.systemctl_calls()) for name, host in fleet.hosts.items()}
    fleet.roll_out(Desired(image, fleet.desired.at_once))
    fleet.until(lambda: rebooted in fleet.working(), f"{rebooted} is changed")
    fleet.take_down(rebooted, _REBOOT_S)
    fleet.hosts[rebooted].boot()
    fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are upgraded")
    assert {name: host.ledger() for name, host in fleet.hosts.items()} == ledgers, "an upgrade has changed a ledger"
    restarts = {name: _kubelet_restarts(host, calls[name]) for name, host in fleet.hosts.items()}
    assert max(restarts.values()) <= 1, f"restarts of a kubelet: {restarts}"
    remark = _remark(fleet, misled)
    assert remark.startswith("mooring-init.service: "), f"the wrong offer of {misled} is not reported: {remark!r}"
    others = {name: text for name in fleet.hosts if name != misled and (text := _remark(fleet, name))}
    assert not others, f"other nodes are not ready: {others}"
    fleet.hosts[misled].hand_over(_RIGHT_OFFER)
    fleet.take_down(misled, 0)
    fleet.until(lambda: not _remark(fleet, misled), f"{misled} is ready")
    held = sum(map(len, ledgers.values()))
    return f"{held} VFs held; restarts of kubelets: {sum(restarts.values())}; {misled}: {remark}"


def _return(fleet: Fleet, image: Runtime) -> str:
    """Go back to the first release with all VFs held."""
    ledgers = {name: host.ledger() for name, host in fleet.hosts.items()}
    calls = {name: len(host.systemctl_calls()) for name, host in fleet.hosts.items()}
    fleet.roll_out(Desired(image, fleet.desired.at_once))
    fleet.until(lambda: fleet.phases()["installed"] == len(fleet.hosts), "all are returned")
    assert {name: host.ledger() for name, host in fleet.hosts.items()} == ledgers, "a return has changed a ledger"
    restarts = {name: _kubelet_restarts(host, calls[name]) for name, host in fleet.hosts.items()}
    assert max(restarts.values()) <= 1, f"restarts of a kubelet: {restarts}"
    return f"{sum(map(len, ledgers.values()))} VFs held; restarts of kubelets: {sum(restarts.values())}"


def _remark(fleet: Fleet, name: str) -> str:
    found = fleet.hosts[name].installation()
    return "not reported" if found is None else found.why


def _kubelet_restarts(host: SimulatedHost, since: int) -> int:
    return sum(call.endswith("restart kubelet.service") for call in host.systemctl_calls()[since:])


def _remove(fleet: Fleet, holding: Collection[str]) -> str:
    """Remove all; hosts whose pods still have VFs wait for them, and keep the others from nothing."""
    for name, host in fleet.hosts.items():
        if name not in holding:
            host.release_vfs()
    fleet.roll_out(Desired(fleet.desired.image, fleet.desired.at_once, removes=True))
    fleet.until(lambda: fleet.phases()["removed"] == len(fleet.hosts) - len(holding), "all without pods are removed")
    for name in holding:
        fleet.until(partial(_waits, fleet, name), f"{name} waits for its pods")
        assert (fleet.hosts[name].root / "opt/mooring/current").exists(), f"{name} was removed under its pods"
        fleet.hosts[name].release_vfs()
        fleet.take_down(name, 0)
    fleet.until(lambda: fleet.phases()["removed"] == len(fleet.hosts), "all are removed")
    return f"{len(holding)} waited for their pods"


def _waits(fleet: Fleet, name: str) -> bool:
    return _remark(fleet, name).startswith("waits until pods give back their VFs: default/p")
