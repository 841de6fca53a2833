"""What a container runtime passes to its CNI plugins, and how it reads their answers. Pure.

As containerd 1.6 does it (go-cni over libcni 1.1): the pod's annotations are offered as a capability, null without any.
A result loses every field that the types of CNI 1.0 do not have, before it becomes the next prevResult.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POD_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
_RESULT_FIELDS = {"interfaces": ("name", "mac", "sandbox"), "ips": ("version", "interface", "address", "gateway")}
_ROUTE_FIELDS = ("dst", "gw")
_DNS_FIELDS = ("nameservers", "domain", "search", "options")

Document = Mapping[str, object]


class NetworkError(Exception):
    """A network that could not be set up or removed, in the words of libcni."""


@dataclass(frozen=True, slots=True)
class Network:
    """One conflist: its plugins are called in order for ADD, backwards for DEL."""

    name: str
    version: str
    plugins: tuple[Document, ...]


LOOPBACK = Network("cni-loopback", "0.3.1", ({"type": "loopback"},))


@dataclass(frozen=True, slots=True)
class Attachment:
    """One sandbox's part in a network.

    ``netns`` is a path, empty once the namespace is gone; ``annotations`` are None if the pod has none.
    """

    container_id: str
    netns: str
    ifname: str
    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str] | None


def parse_conflist(text: str) -> Network:
    """Read a conflist; raise NetworkError for an invalid one."""
    try:
        document = json.loads(text)
        plugins = tuple(document["plugins"])
        if not plugins or any(not isinstance(plugin["type"], str) for plugin in plugins):
            raise NetworkError("cni config load failed: a network list needs plugins, each with a type")
        return Network(document["name"], document.get("cniVersion", "0.1.0"), plugins)
    except (ValueError, KeyError, TypeError) as unreadable:
        raise NetworkError(f"cni config load failed: {unreadable!r}") from unreadable


def environment(command: str, attachment: Attachment, search_path: str) -> Mapping[str, str]:
    """Return the CNI_* variables of one call (CNI spec 1.0, section 2, "Parameters")."""
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": attachment.namespace,
        "K8S_POD_NAME": attachment.name,
        "K8S_POD_INFRA_CONTAINER_ID": attachment.container_id,
        "K8S_POD_UID": attachment.uid,
    }
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": attachment.container_id,
        "CNI_NETNS": attachment.netns,
        "CNI_IFNAME": attachment.ifname,
        "CNI_PATH": search_path,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments.items()),
    }


def configuration(network: Network, plugin: Document, attachment: Attachment, previous: Document | None) -> Document:
    """Return what one plugin reads on stdin (CNI spec 1.0, section 3, "Deriving execution configuration")."""
    injected: dict[str, object] = {"name": network.name, "cniVersion": network.version}
    if previous is not None:
        injected["prevResult"] = previous
    capabilities = plugin.get("capabilities")
    if isinstance(capabilities, Mapping) and capabilities.get(POD_ANNOTATIONS) is True:
        injected["runtimeConfig"] = {POD_ANNOTATIONS: attachment.annotations}
    return {**plugin, **injected}


def standard_result(text: str, version: str) -> Document:
    """Return a plugin's result with the fields that libcni keeps; raise NetworkError if it is not a JSON object."""
    document = _object(text)
    result: dict[str, object] = {"cniVersion": version}
    for part, fields in _RESULT_FIELDS.items():
        if entries := _objects(document.get(part)):
            result[part] = [_only(entry, fields) for entry in entries]
    if routes := _objects(document.get("routes")):
        result["routes"] = [_only(route, _ROUTE_FIELDS) for route in routes]
    dns = document.get("dns")
    result["dns"] = _only(dns, _DNS_FIELDS) if isinstance(dns, Mapping) else {}
    return result


def pod_ips(result: Document, ifname: str) -> tuple[str, ...]:
    """Return the addresses, without prefix, that belong to one interface; an address without an interface counts."""
    names = [interface.get("name") for interface in _objects(result.get("interfaces"))]
    found = []
    for address in _objects(result.get("ips")):
        index = address.get("interface")
        if not isinstance(index, int) or (index < len(names) and names[index] == ifname):
            found.append(str(address.get("address")).partition("/")[0])
    return tuple(found)


def failure(kind: object, verb: str, stdout: str, stderr: str) -> NetworkError:
    """Return libcni's message for a plugin that ended with an error; ``verb`` is add or delete."""
    return NetworkError(f'plugin type="{kind}" failed ({verb}): {_reason(stdout, stderr)}')


def is_gone(problem: NetworkError, netns: str) -> bool:
    """Return whether a failed DEL means that nothing is left, by go-cni's rule."""
    text = str(problem)
    return "not found" in text or (not netns and "no such file or directory" in text)


def _reason(stdout: str, stderr: str) -> str:
    if not stdout:
        return f"netplugin failed: {stderr!r}" if stderr else "netplugin failed with no error message"
    try:
        document = _object(stdout)
    except NetworkError as unreadable:
        return f"netplugin failed but error parsing its diagnostic message {stdout!r}: {unreadable}"
    details = document.get("details")
    return f"{document.get('msg', '')}; {details}" if details else f"{document.get('msg', '')}"


def _object(text: str) -> Document:
    try:
        document = json.loads(text)
    except ValueError as unreadable:
        raise NetworkError(f"{text!r} is not JSON: {unreadable}") from unreadable
    if not isinstance(document, dict):
        raise NetworkError(f"{text!r} is not a JSON object")
    return document


def _objects(entries: object) -> Sequence[Document]:
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _only(document: Document, fields: Sequence[str]) -> Document:
    return {field: document[field] for field in fields if field in document}
