"""Read the part of a systemd unit, a service, a timer or a path, that the stand-in supports. Pure.

Supported are the settings of Mooring's units and of a simulated host's for starting, ending, limits and folders, as in
systemd.service(5) and systemd.exec(5). What confines a program (ProtectSystem, CapabilityBoundingSet and their like) is
ignored: a real systemd runs those units in the lab.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_SPAN = re.compile(r"(\d+)(ms|s|min|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "": 1.0}
_DEFAULT_STOP_S = 90.0
# Unit -> option of the shell's ulimit.
_LIMITS = {"LimitMEMLOCK": "-l", "LimitNOFILE": "-n"}
_FOLDERS = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib"}
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Unit:
    """One service: ``exec_start`` as written; ``folders`` are (path, mode); times in seconds."""

    name: str
    exec_start: str
    kind: str = "simple"
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_files: Sequence[str] = ()
    restarts: bool = False
    restart_s: float = 0.1
    stop_s: float = _DEFAULT_STOP_S
    main_process_only: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[tuple[str, int]] = ()
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    before: Sequence[str] = ()

    def command(self, environment: Mapping[str, str]) -> list[str]:
        """Return the words to execute: `$NAME` is a variable's words, `${NAME}` is its text."""
        words = [word for text in shlex.split(self.exec_start) for word in _words(text, environment)]
        if not self.limits:
            return words
        # This machine's root may be denied to raise a limit: then it stays as it is.
        limits = [f"ulimit {option} {value} 2>/dev/null || :" for option, value in self.limits.items()]
        return ["sh", "-c", "\n".join([*limits, 'exec "$@"']), "sh", *words]


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer of a service: when it starts it after the boot, and how long after each start it does again, seconds."""

    name: str
    service: str
    boot_s: float
    active_s: float


@dataclass(frozen=True, slots=True)
class PathUnit:
    """What starts a service: a file or folder that exists, a folder that is not empty, a file that has changed."""

    name: str
    service: str
    exists: Sequence[str] = ()
    not_empty: Sequence[str] = ()
    changed: Sequence[str] = ()


def parse_path(name: str, text: str) -> PathUnit:
    """Read a path unit (systemd.path(5)); raise ValueError for one that watches nothing."""
    said: dict[str, list[str]] = {}
    for key, value in _lines(text):
        said.setdefault(key, []).append(value)
    exists, not_empty, changed = (said.get(key, []) for key in ("PathExists", "DirectoryNotEmpty", "PathChanged"))
    if not (exists or not_empty or changed):
        raise ValueError(f"unit {name!r} watches no path")
    service = said.get("Unit", [f"{name.removesuffix('.path')}.service"])[-1]
    return PathUnit(name, service, exists, not_empty, changed)


def parse_timer(name: str, text: str) -> Timer:
    """Read a timer (systemd.timer(5)); raise ValueError for one without both times."""
    said = dict(_lines(text))
    if not (said.get("OnBootSec") and said.get("OnUnitActiveSec")):
        raise ValueError(f"unit {name!r} has no OnBootSec or no OnUnitActiveSec")
    service = said.get("Unit", f"{name.removesuffix('.timer')}.service")
    return Timer(name, service, _span(said["OnBootSec"]), _span(said["OnUnitActiveSec"]))


def parse(name: str, texts: Sequence[str]) -> Unit:
    """Read a unit and its drop-ins, in their order; raise ValueError if it starts nothing."""
    said: dict[str, list[str]] = {}
    for key, value in (line for text in texts for line in _lines(text)):
        # An empty value resets the earlier ones.
        said[key] = [*said.get(key, ()), value] if value else []
    if not said.get("ExecStart"):
        raise ValueError(f"unit {name!r} has no ExecStart")

    def last(key: str, default: str = "") -> str:
        return (said.get(key) or [default])[-1]

    assigned = [word.partition("=") for line in said.get("Environment", ()) for word in shlex.split(line)]
    return Unit(
        name=name,
        exec_start=last("ExecStart"),
        kind=last("Type", "simple"),
        environment={key: value for key, _, value in assigned},
        environment_files=tuple(said.get("EnvironmentFile", ())),
        restarts=last("Restart", "no") == "always",
        restart_s=_span(last("RestartSec", "100ms")),
        stop_s=_span(last("TimeoutStopSec", str(int(_DEFAULT_STOP_S)))),
        main_process_only=last("KillMode") == "process",
        limits={option: _limit(last(key)) for key, option in _LIMITS.items() if last(key)},
        folders=tuple(_folders(last)),
        needs=tuple(said.get("ConditionPathExists", ())),
        after=_names(said, "After"),
        before=_names(said, "Before"),
    )


def read_environment(text: str) -> dict[str, str]:
    """Return the variables of an EnvironmentFile; a value may be quoted."""
    pairs = (line.strip().partition("=") for line in text.splitlines() if "=" in line and line[:1] not in "#;")
    return {key: " ".join(shlex.split(value)) if value[:1] in "\"'" else value for key, _, value in pairs}


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Return the units so that each follows those that it starts after."""
    names = {unit.name for unit in units}
    earlier = {unit.name: {*unit.after, *(one.name for one in units if unit.name in one.before)} for unit in units}
    left, ordered = sorted(units, key=lambda unit: unit.name), list[Unit]()
    while left:
        done = {unit.name for unit in ordered}
        # A cycle is broken at its first name, as systemd breaks it somewhere.
        free = next((unit for unit in left if earlier[unit.name] & names <= done), left[0])
        ordered.append(free)
        left.remove(free)
    return ordered


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def _words(text: str, environment: Mapping[str, str]) -> list[str]:
    whole = _VARIABLE.fullmatch(text)
    if whole is not None and whole[1]:
        return environment.get(whole[1], "").split()
    return [_VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), text)]


def _span(text: str) -> float:
    return sum(int(count) * _SECONDS[unit] for count, unit in _SPAN.findall(text))


def _limit(value: str) -> str:
    return "unlimited" if value == "infinity" else value


def _folders(last: Callable[..., str]) -> Iterator[tuple[str, int]]:
    for key, parent in _FOLDERS.items():
        for name in last(key).split():
            yield f"{parent}/{name}", int(last(f"{key}Mode", "0755"), 8)


def _names(said: Mapping[str, Sequence[str]], key: str) -> tuple[str, ...]:
    return tuple(name for line in said.get(key, ()) for name in line.split())
