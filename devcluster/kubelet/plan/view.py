"""The runtime's view of one pod, as values. Pure."""

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """A container's state over CRI."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One pod sandbox; ``attempt`` counts from 0, ``ips`` are empty on the host's network."""

    id: str
    attempt: int
    ready: bool
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """One container; times are seconds since the epoch, 0 where not yet."""

    id: str
    name: str
    sandbox_id: str
    attempt: int
    state: State
    image: str = ""
    exit_code: int = 0
    started_s: float = 0
    finished_s: float = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a container."""

    inside: str
    host: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class View:
    """Everything that the runtime lists of one pod."""

    sandboxes: tuple[Sandbox, ...] = ()
    containers: tuple[Container, ...] = ()

    def newest_sandbox(self) -> Sandbox | None:
        return max(self.sandboxes, key=lambda sandbox: sandbox.attempt, default=None)

    def ready_sandbox(self) -> Sandbox | None:
        """Return the newest sandbox if it is ready; an older one that is still ready does not count."""
        newest = self.newest_sandbox()
        return newest if newest is not None and newest.ready else None

    def latest(self, name: str, sandbox: Sandbox | None = None) -> Container | None:
        """Return the last attempt at a container, in one sandbox or in any."""
        attempts = (
            container
            for container in self.containers
            if container.name == name and (sandbox is None or container.sandbox_id == sandbox.id)
        )
        return max(attempts, key=lambda container: container.attempt, default=None)

    def next_attempt(self, name: str) -> int:
        latest = self.latest(name)
        return 0 if latest is None else latest.attempt + 1

    def is_empty(self) -> bool:
        """Return whether nothing is left; a container cannot outlive its sandbox."""
        return not self.sandboxes
