"""Read a program's configuration: flags, then ``MOORING_*`` in the environment, then /etc/mooring/config.yaml.

A program describes its configuration as a frozen dataclass whose fields are made by `option`; the type of an option is
the type of its default. The field ``node_name`` is the flag ``--node-name`` and the variable ``MOORING_NODE_NAME``. In
the file it is ``node_name`` at the top level or in the section with the program's name, which takes precedence.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from mooring.bounded_yaml import load as load_yaml
from mooring.files import NOT_UTF_8, read_file
from mooring.program.version_flag import add_version_flag

DEFAULT_FILE = Path("/etc/mooring/config.yaml")
_TRUE = {"true": True, "false": False}
_HIGHEST_PORT = 0xFFFF
Config = TypeVar("Config")


class ConfigError(ValueError):
    """A configuration value is invalid; the message has the option, where it was set, its value and the rule."""


def option(default: object, meaning: str, short: str = "") -> Any:
    """Describe one option; ``meaning`` is its help text, with the unit; ``short`` is the letter of a short flag."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "short": short})


def load(
    kind: type[Config],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    commands: Sequence[str] = (),
) -> tuple[str | None, Config]:
    """Return the command, one of ``commands`` (None if there are none), and the configuration.

    A command can have a second word, such as ``bypass on``. Exit with status 2 on wrong usage, as argparse does; raise
    ConfigError for an invalid value in environment or file.
    """
    parser = _parser(kind, program, commands)
    # Intermixed, because the second word can come after a flag.
    flags = vars(parser.parse_intermixed_args(arguments))
    command = " ".join(filter(None, (flags.pop("command", None), flags.pop("word", None)))) or None
    if command is not None and command not in commands:
        parser.error(f"command {command!r} is not one of {', '.join(commands)}")
    config_path = flags.pop("config") or environment.get("MOORING_CONFIG")
    in_file = _read_file(Path(config_path or DEFAULT_FILE), program, must_exist=config_path is not None)
    values: dict[str, object] = {}
    for field in _fields(kind):
        origin, raw = _first(field.name, flags, environment, in_file)
        if raw is not None:
            values[field.name] = _convert(raw, field.default, f"{origin} of {program}")
    return command, kind(**values)


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether this machine has a configuration file of Mooring."""
    return Path(environment.get("MOORING_CONFIG") or DEFAULT_FILE).exists()


def host_and_port(address: str) -> tuple[str | None, int]:
    """Split ``host:port``, IPv6 as ``[::1]:port``; the host is None for all addresses. Raise ConfigError."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= _HIGHEST_PORT):
        raise ConfigError(f"address {address!r} is not host:port")
    return host.strip("[]") or None, int(port)


def _fields(kind: type[object]) -> tuple["dataclasses.Field[object]", ...]:
    return dataclasses.fields(cast("Any", kind))


def _parser(kind: type[object], program: str, commands: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=(kind.__doc__ or "").strip() or None)
    words = sorted({word for command in commands for word in command.split()[1:]})
    if commands:
        parser.add_argument("command", choices=[*dict.fromkeys(command.split()[0] for command in commands)])
    if words:
        parser.add_argument("word", nargs="?", choices=words)
    add_version_flag(parser)
    parser.add_argument("--config", metavar="FILE", help=f"configuration file (default {DEFAULT_FILE})")
    for field in _fields(kind):
        default_value = str(field.default).lower() if isinstance(field.default, bool) else field.default
        default = "none" if default_value in (None, "") else default_value
        meaning = field.metadata["meaning"].replace("%", "%%")
        flag = f"--{field.name.replace('_', '-')}"
        flags = (f"-{field.metadata['short']}", flag) if field.metadata["short"] else (flag,)
        # --check without a value means --check true.
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if isinstance(field.default, bool) else {}
        parser.add_argument(*flags, metavar=flag[2].upper(), help=f"{meaning} (default {default})", **bare)
    return parser


def _first(
    name: str, flags: Mapping[str, object], environment: Mapping[str, str], in_file: Mapping[str, object]
) -> tuple[str, object]:
    variable = f"MOORING_{name.upper()}"
    places = ((f"flag --{name.replace('_', '-')}", flags.get(name)), (variable, environment.get(variable)))
    for origin, raw in places:
        if raw is not None:
            return origin, raw
    return f"{name} in the configuration file", in_file.get(name)


def _read_file(path: Path, program: str, *, must_exist: bool) -> Mapping[str, object]:
    try:
        text = read_file(path)
        if text is not None and NOT_UTF_8 in text:
            raise ValueError("not UTF-8")
        document = load_yaml(text) if text is not None else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"configuration file {str(path)!r} cannot be read: {error}") from error
    if text is None and must_exist:
        raise ConfigError(f"configuration file {str(path)!r} does not exist")
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"configuration file {str(path)!r} is not a mapping")
    section = document.get(program)
    return document | section if isinstance(section, dict) else document


def _convert(raw: object, default: object, origin: str) -> object:
    """Convert a value to its option's type: bool, int, float, Path or text."""
    try:
        if isinstance(default, bool):
            return raw if isinstance(raw, bool) else _TRUE[str(raw).lower()]
        if isinstance(default, int | float | Path):
            return type(default)(cast("Any", raw))
    except (KeyError, TypeError, ValueError, OverflowError):
        rule = "true or false" if isinstance(default, bool) else f"a value like {default}"
        raise ConfigError(f"{origin}: {raw!r} is not {rule}") from None
    return str(raw)
