"""Add the installation's settings to the programs' configuration file, and keep what the operator wrote."""

from collections.abc import Mapping
from typing import Any

import yaml

from cli.node.errors import NodeError
from cli.node.plan.states import Change, File, Host, PathChange, added
from mooring.bounded_yaml import YamlError, load

PATH = "/etc/mooring/config.yaml"
_HEAD = "# Written by mooring-node install. Every option of the programs can be set here (see --help).\n"


def read(host: Host) -> Mapping[str, Any]:
    """Return the configuration, empty without a file; raise NodeError if it cannot be read."""
    try:
        document = load(host.text(PATH) or "")
    except YamlError as wrong:
        raise NodeError(f"configuration {PATH!r} cannot be read: {wrong}") from wrong
    if document is not None and not isinstance(document, dict):
        raise NodeError(f"configuration {PATH!r} is not a mapping")
    return document or {}


def value(document: Mapping[str, Any], program: str, name: str) -> object:
    """Return a program's value of ``name`` from its own section or, without one, from the top level."""
    section = document.get(program)
    own = section.get(name) if isinstance(section, dict) else None
    return document.get(name) if own is None else own


def settle(host: Host, wanted: Mapping[str, Any]) -> list[Change]:
    """Return the change that adds ``wanted`` to the file; missing sections are added at the end.

    Raise NodeError if the file has another value, because the operator's values are not overwritten.
    """
    now = read(host)
    missing = {key: value for key, value in wanted.items() if key not in now}
    for key in wanted.keys() & now.keys():
        _agree(key, wanted[key], now[key])
    if not missing:
        return []
    text = yaml.safe_dump(missing, sort_keys=False)
    there = host.text(PATH)
    if there is None:
        return [PathChange(PATH, host.at(PATH), File(_HEAD + text), host.missing_folder(PATH))]
    return [added(PATH, there, text)]


def _agree(key: str, wanted: object, now: object) -> None:
    if not isinstance(wanted, dict):
        if wanted != now:
            raise NodeError(f"{_subject(key)} in {PATH!r} is {now!r}, but {wanted!r} is requested: change one of them")
        return
    section = now if isinstance(now, dict) else {}
    for name, inner in wanted.items():
        if name not in section:
            raise NodeError(f"section {key!r} in {PATH!r} has no {name}: add `{name}: {inner}`")
        _agree(f"{key}.{name}", inner, section[name])


def _subject(key: str) -> str:
    """Return a setting's name, with the flag of mooring-node that requests its value if there is one."""
    program, _, name = key.partition(".")
    return f"{key} (flag --{name.replace('_', '-')})" if program == "mooring-node" else key
