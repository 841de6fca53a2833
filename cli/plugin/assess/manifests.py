"""What `lint` says of live manifests: of each workload's templates, and of pods that no listed workload made. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cli.plugin.assess.snapshot import ATTACHMENTS, CLAIMS, Object, Snapshot, at, items, key_of
from cli.plugin.reports.lint.manifests import Place, PodPlace, WithoutPods, pods_of
from cli.plugin.reports.lint.other_networks import Networks, read_networks
from cli.plugin.reports.lint.report import examine
from mooring import names

_TEMPLATES = tuple(path.replace("resourceclaims", "resourceclaimtemplates") for path in CLAIMS)


@dataclass(frozen=True, slots=True)
class ManifestRemark:
    """A line of `lint` about an object; ``is_refused`` if Mooring would not accept the object as it is."""

    owner: str
    field: str
    rule: str
    is_refused: bool


def whole_of(item: Object, kind: str) -> Place:
    """Return an object of a list, which lacks its kind there, as a manifest whose lines are unknown."""
    return Place({**item, "kind": kind}, (), {(): 1})


def networks_of(snapshot: Snapshot) -> Networks:
    """Return what the cluster's objects say about networks and claims."""
    kinds = {ATTACHMENTS: "NetworkAttachmentDefinition", **dict.fromkeys(CLAIMS, "ResourceClaim")}
    kinds |= dict.fromkeys(_TEMPLATES, "ResourceClaimTemplate")
    return read_networks((kind, whole_of(item, kind)) for path, kind in kinds.items() for item in snapshot.all(path))


def remarks(snapshot: Snapshot, networks: Networks, workloads: Mapping[str, str]) -> list[ManifestRemark]:
    """Return what `lint` says, each line once."""
    objects = list(_objects(snapshot, workloads))
    checked = examine([(owner, one) for owner, one in objects], (names.SCHEDULER_NAME,), networks)
    refused = [
        ManifestRemark(finding.file, finding.field, finding.rule, is_refused=True) for finding in checked.findings
    ]
    others = [ManifestRemark(note.file, note.field, note.rule, is_refused=False) for note in checked.notes]
    return list(dict.fromkeys([*refused, *others]))


def _objects(snapshot: Snapshot, workloads: Mapping[str, str]) -> Iterator[tuple[str, PodPlace | WithoutPods]]:
    for path, kind in workloads.items():
        for item in snapshot.all(path):
            # What another listed object made has the same template.
            if not _is_made(item, workloads):
                yield from ((f"{kind}/{key_of(item)}", pod) for pod in pods_of(whole_of(item, kind)))
    seen = set[tuple[object, object]]()
    for pod in snapshot.pods():
        controller = next((item for item in items(pod, "metadata", "ownerReferences") if at(item, "controller")), None)
        owner = (at(controller, "kind"), at(controller, "name"))
        if controller is not None and (owner in seen or owner[0] == "ReplicaSet" or owner[0] in workloads.values()):
            continue
        seen.add(owner)
        yield from ((f"Pod/{key_of(pod)}", one) for one in pods_of(whole_of(pod, "Pod")))


def _is_made(item: Object, workloads: Mapping[str, str]) -> bool:
    kinds = set(workloads.values())
    return any(at(one, "kind") in kinds and at(one, "controller") for one in items(item, "metadata", "ownerReferences"))
