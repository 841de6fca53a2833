"""What a real server does to storage objects when they are created or changed: defaults, finalizers, fixed fields.

This server has no volume controller: a test that binds claims and volumes writes both, as that controller does.
"""

from devcluster.apiserver.objects import Object, metadata_of, section
from devcluster.apiserver.status import Cause

CLAIMS, VOLUMES = ("", "persistentvolumeclaims"), ("", "persistentvolumes")
CLASSES = ("storage.k8s.io", "storageclasses")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_MODES = "spec.accessModes"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_IMMUTABLE = (
    "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
    "claims"
)
_FIXED_OF_CLASS = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def default_claim(claim: Object, classes: list[Object]) -> list[Cause]:
    """Complete a new claim, with the default class if there is one; return what it lacks."""
    spec = claim["spec"] = section(claim, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    named = spec.get("storageClassName", section(metadata_of(claim), "annotations").get(_OLD_CLASS))
    if named is None and (default := _default_class(classes)) is not None:
        spec["storageClassName"] = default
    _protect(claim, "kubernetes.io/pvc-protection")
    claim["status"] = {"phase": "Pending"}
    causes: list[Cause] = []
    if not spec.get("accessModes"):
        causes.append(Cause("FieldValueRequired", "Required value: at least 1 access mode is required", _MODES))
    if "storage" not in section(section(spec, "resources"), "requests"):
        causes.append(_required("spec.resources[storage]"))
    return causes


def _default_class(classes: list[Object]) -> str | None:
    """Return the class marked as default; of several the youngest, as in the admission plugin."""
    marked = [one for one in classes if section(metadata_of(one), "annotations").get(_DEFAULT_CLASS) == "true"]
    marked.sort(key=lambda one: one["metadata"]["name"])
    marked.sort(key=lambda one: one["metadata"]["creationTimestamp"], reverse=True)
    return str(marked[0]["metadata"]["name"]) if marked else None


def default_volume(volume: Object) -> list[Cause]:
    """Complete a new volume; return what it lacks."""
    spec = volume["spec"] = section(volume, "spec")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    _protect(volume, "kubernetes.io/pv-protection")
    volume["status"] = {"phase": "Pending"}
    return [_required(f"spec.{name}") for name in ("accessModes", "capacity") if not spec.get(name)]


def default_class(storage_class: Object) -> list[Cause]:
    """Complete a new class; return what it lacks."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")
    return [] if storage_class.get("provisioner") else [_required("provisioner")]


def update_causes(storage: tuple[str, str], old: Object, new: Object) -> list[Cause]:
    """Return which fixed fields an update would change."""
    if storage == CLAIMS:
        return _claim_causes(section(old, "spec"), section(new, "spec"))
    if storage == VOLUMES:
        before, after = (section(one, "spec").get("nodeAffinity") for one in (old, new))
        return [_fixed(after, "nodeAffinity")] if before and before != after else []
    if storage == CLASSES:
        return [_fixed(new.get(name), name) for name in _FIXED_OF_CLASS if old.get(name) != new.get(name)]
    return []


def _claim_causes(old: Object, new: Object) -> list[Cause]:
    """Allow a claim to get its volume and its class once, and nothing else to change but its request."""
    allowed = {**new, "resources": old.get("resources")}
    if not old.get("volumeName"):
        allowed.pop("volumeName", None)
    if "storageClassName" not in old:
        allowed.pop("storageClassName", None)
    kept = {key: value for key, value in old.items() if key in allowed or value}
    same = allowed == {**kept, "resources": old.get("resources")}
    return [] if same else [Cause("FieldValueForbidden", _IMMUTABLE, "spec")]


def _required(field: str) -> Cause:
    return Cause("FieldValueRequired", "Required value", field)


def _fixed(value: object, field: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {value!r}: field is immutable", field)


def _protect(obj: Object, finalizer: str) -> None:
    """Add the finalizer that protects an object in use, as the admission plugin StorageObjectInUseProtection does."""
    metadata = metadata_of(obj)
    present = metadata.get("finalizers") or []
    if finalizer not in present:
        metadata["finalizers"] = [*present, finalizer]
