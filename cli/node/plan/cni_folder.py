"""Read the network configurations in the runtime's folder as the runtime does: in byte order, as lists of plugins."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan.states import Host
from mooring.parsing import decode

PLUGIN = "mooring-cni"
# Our file names, the preferred one first; each sorts before the previous one. The preferred one sorts after Multus'
# files (00-multus.conf, 00-multus.conflist): if Multus is installed later, the runtime still uses Multus' file.
OURS = (
    *("00-n-mooring.conflist", "00-mooring.conflist", "00-0-mooring.conflist"),
    *("0-mooring.conflist", "!mooring.conflist"),
)
_ENDINGS = (".conf", ".conflist", ".json")  # The files that containerd and CRI-O read.
_LEAST = "0.4.0"


@dataclass(frozen=True, slots=True)
class Configuration:
    """One file: its name, its JSON, and its plugins; a file with a single plugin is a list of one."""

    name: str
    raw: Mapping[str, Any]
    plugins: Sequence[Mapping[str, Any]]

    def as_list(self) -> dict[str, Any]:
        """Return it as a list; the runtime gives each entry the list's name and version (buildOneConfig in libcni)."""
        return list_of(self.raw)


def list_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration's JSON as a list of plugins."""
    head = {"cniVersion": raw.get("cniVersion", _LEAST), "name": raw["name"]}
    if "plugins" in raw:
        return {**raw, **head}
    return {**head, "plugins": [{name: value for name, value in raw.items() if name not in head}]}


def configurations(host: Host, without: Collection[str] = (), *, strict: bool = False) -> Iterator[Configuration]:
    """Yield the folder's configurations; skip unreadable ones or, if ``strict``, raise NodeError for them."""
    folder = host.cni.conf
    for name in host.below(folder):
        if not name.endswith(_ENDINGS) or name in without:
            continue
        try:
            yield _read(folder, name, host.text(f"{folder}/{name}") or "")
        except NodeError:
            if strict:
                raise


def used(host: Host, without: Collection[str] = (), *, strict: bool = False) -> Configuration | None:
    """Return the configuration that the runtime uses: the first one or, for CRI-O, the first with a given name.

    CRI-O's ``cni_default_network`` names it (loadNetworks in ocicni's pkg/ocicni/ocicni.go).
    """
    network = host.cni.network
    found = configurations(host, without, strict=strict)
    return next((configuration for configuration in found if network in ("", configuration.raw["name"])), None)


def _read(folder: str, name: str, text: str) -> Configuration:
    """Read a file; raise NodeError if libcni would not load it (NetConf and NetConfList in pkg/types)."""
    raw = json_of(text)
    if (wrong := _wrong(raw, is_list=name.endswith(".conflist"))) is not None:
        raise NodeError(f"network configuration {name!r} in {folder!r} cannot be read: {wrong}")
    assert isinstance(raw, dict), "it has been checked"
    if name.endswith(".conflist"):
        return Configuration(name, raw, raw["plugins"])
    # For a single plugin libcni ignores the field 'plugins'.
    single = {field: value for field, value in raw.items() if field != "plugins"}
    return Configuration(name, single, [single])


def _wrong(raw: object, *, is_list: bool) -> str | None:
    """Return what is wrong with a configuration, None if it is valid."""
    if not isinstance(raw, dict):
        return "it is not a JSON object"
    plugins = raw.get("plugins") if is_list else [raw]
    if not isinstance(plugins, list) or not all(isinstance(entry, dict) for entry in plugins):
        return "'plugins' is not a list of objects"
    if not plugins:
        return "it has no plugin"
    heads = [_wrong_field(raw, "name", str, "a text"), _wrong_field(raw, "cniVersion", str | None, "a text")]
    return next(filter(None, (*heads, *map(_wrong_entry, plugins))), None)


def _wrong_entry(entry: Mapping[str, Any]) -> str | None:
    wrong_type = _wrong_field(entry, "type", str, "a text")
    return wrong_type or _wrong_field(entry, "capabilities", dict | None, "an object")


def _wrong_field(raw: Mapping[str, Any], name: str, kind: Any, rule: str) -> str | None:
    value = raw.get(name)
    return None if isinstance(value, kind) else f"{name!r} is {value!r:.80}, not {rule}"


def json_of(text: str) -> object:
    """Return a file's JSON; None if it is invalid or nested too deeply."""
    try:
        return decode(text)
    except ValueError:
        return None


def raw_entries(host: Host, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the plugins of a file that may be invalid."""
    yield from entries_of(json_of(host.text(f"{host.cni.conf}/{name}") or ""))


def entries_of(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield the plugins of a list, or a single plugin."""
    if not isinstance(document, dict):
        return
    plugins = document.get("plugins", [document])
    yield from (entry for entry in (plugins if isinstance(plugins, list) else ()) if isinstance(entry, dict))


def is_ours(entry: Mapping[str, Any]) -> bool:
    return entry.get("type") == PLUGIN
