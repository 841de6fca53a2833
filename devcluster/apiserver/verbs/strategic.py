"""Apply a strategic merge patch: lists of objects merge by key where the Kubernetes API types define one.

The place of a list in the document decides its merge key (the `patchMergeKey` tags of k8s.io/api). A list that is not
named here is atomic: taints of a node, args of a container, and everything of kinds that the server only stores.
"""

from typing import Any

from devcluster.apiserver.objects import Object
from devcluster.apiserver.status import bad_request

# (field of the parent, field) or field alone -> merge keys, the first that the elements carry counts.
_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "addresses": ("type",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "secrets": ("name",),
}
_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})
# In these kinds the same names have another meaning: a Service port merges by port, EndpointSlice addresses are atomic.
_KINDS = frozenset(
    {"Pod", "Node", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "Service"}
    | {"Namespace", "ServiceAccount", "PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume", "PodGroup"}
)


def strategic_merge(kind: str, target: Object, patch: Any) -> Object:
    """Return `target` with the patch applied; raise 400 where a directive cannot be read."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch must be an object")
    keyed = kind in _KINDS
    merged = _merge_object(target, patch, keyed)
    return merged if isinstance(merged, dict) else {}


def _merge_object(target: Any, patch: Object, keyed: bool) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown $patch directive {directive!r}")
    current = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        current = {key: value for key, value in current.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            _delete_primitives(current, key.partition("/")[2], value)
        elif not key.startswith("$"):
            _merge_field(current, key, value, patch, keyed)
    return current


def _delete_primitives(current: Object, field: str, unwanted: list[Any]) -> None:
    current[field] = [one for one in current.get(field) or [] if one not in unwanted]


def _merge_field(current: Object, key: str, value: Any, patch: Object, keyed: bool) -> None:
    if value is None:
        current.pop(key, None)
    elif isinstance(value, dict):
        current[key] = _merge_object(current.get(key), value, keyed)
    elif isinstance(value, list):
        order = patch.get(f"$setElementOrder/{key}")
        current[key] = _merge_list(current.get(key) or [], value, key, order, keyed)
    else:
        current[key] = value


def _merge_list(current: list[Any], patch: list[Any], field: str, order: Any, keyed: bool) -> list[Any]:
    if field in _PRIMITIVE_SETS:
        return _ordered(list(dict.fromkeys([*current, *patch])), order, None)
    merge_key = _merge_key(field, [*patch, *current]) if keyed else None
    if merge_key is None or {"$patch": "replace"} in patch:
        return [_strip(one) for one in patch if one != {"$patch": "replace"}]
    merged = list(current)
    for element in patch:
        _merge_element(merged, element, merge_key, keyed)
    return _ordered(merged, order, merge_key)


def _strip(element: Any) -> Any:
    """Remove directives from an element that replaces."""
    return {k: v for k, v in element.items() if not k.startswith("$")} if isinstance(element, dict) else element


def _merge_key(field: str, elements: list[Any]) -> str | None:
    candidates = _MERGE_KEYS.get(field, ())
    first = next((one for one in elements if isinstance(one, dict) and "$patch" not in one), None)
    if first is None:
        return candidates[0] if candidates and elements else None
    return next((key for key in candidates if key in first), None)


def _merge_element(merged: list[Any], element: Any, merge_key: str, keyed: bool) -> None:
    if not isinstance(element, dict) or merge_key not in element:
        raise bad_request(f"element {element!r} does not contain the merge key {merge_key!r}")
    value = element[merge_key]
    position = next((i for i, one in enumerate(merged) if one.get(merge_key) == value), None)
    if element.get("$patch") == "delete":
        merged[:] = [one for one in merged if one.get(merge_key) != value]
    elif position is None:
        merged.append(_merge_object({}, element, keyed))
    else:
        merged[position] = _merge_object(merged[position], element, keyed)


def _ordered(merged: list[Any], order: Any, merge_key: str | None) -> list[Any]:
    """Sort by `$setElementOrder`; what it does not name keeps its place at the end."""
    if not isinstance(order, list):
        return merged
    wanted = [one.get(merge_key) if merge_key and isinstance(one, dict) else one for one in order]

    def rank(element: Any) -> int:
        value = element.get(merge_key) if merge_key else element
        return wanted.index(value) if value in wanted else len(wanted)

    return sorted(merged, key=rank)
