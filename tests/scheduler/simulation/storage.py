"""The storage of the simulated cluster: claims of users, and a random volume controller and provisioner."""

import itertools
from collections.abc import Iterator

from scheduler.kube.storage_objects import BIND_COMPLETED, SELECTED_NODE
from tests.scheduler.simulation.api import MERGE, Api, ApiObject, Json
from tests.scheduler.simulation.cluster import PodState
from tests.scheduler.volume_store import HOST, on

_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_CLASS = "late"
# What the names of claims begin with whose volumes can be used on all nodes.
ANYWHERE = "anywhere-"


class ClaimState(ApiObject):
    """A claim at one version."""

    @property
    def selected(self) -> str:
        return self.annotations.get(SELECTED_NODE, "")

    @property
    def volume(self) -> str:
        return str(self.document["spec"].get("volumeName") or "")


class Storage:
    """Claims of one class, whose volumes are made for the selected node; most are usable on that node only."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._numbers = itertools.count(1)
        late = {"provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"}
        api.call("POST", _CLASSES, {"metadata": {"name": _CLASS}, **late})

    def claims(self) -> dict[str, ClaimState]:
        claims = self._api.objects("", "persistentvolumeclaims")
        return {name: ClaimState(document) for name, document in claims.items()}

    def create_claim(self, name: str) -> None:
        requests = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteMany"], "resources": requests, "storageClassName": _CLASS}
        self._api.call("POST", _CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def delete_claim(self, name: str) -> None:
        self._api.call("DELETE", f"{_CLAIMS}/{name}")

    def end_claims(self) -> None:
        """Remove deleted claims, even those in use: worse than in a real cluster."""
        for claim in self.claims().values():
            if claim.is_going:
                self._patch_claim(claim.name, {"metadata": {"finalizers": None}})

    def add_volume(self, node: str) -> None:
        """Let an operator add a volume that a claim may take."""
        self._make(f"static-{next(self._numbers)}", node, None)

    def provision(self, claim: ClaimState) -> None:
        """Make the volume that a claim waits for, and bind the two."""
        name = f"made-{next(self._numbers)}"
        self._make(name, claim.selected, claim.name)
        self._bind(claim.name, name)

    def refuse(self, claim: ClaimState) -> None:
        """Do as a provisioner that cannot make the volume there."""
        self._patch_claim(claim.name, {"metadata": {"annotations": {SELECTED_NODE: None}}})

    def asked(self) -> list[ClaimState]:
        """Return the claims for which a provisioner is to make a volume."""
        return [one for one in self.claims().values() if one.selected and not one.volume and not one.is_going]

    def bind_taken(self) -> None:
        """Do as the volume controller: bind the claims that volumes name."""
        claims = self.claims()
        for volume in self._api.objects("", "persistentvolumes").values():
            reference = volume["spec"].get("claimRef") or {}
            claim = claims.get(reference.get("name", ""))
            if claim is None or claim.volume or reference.get("uid") != claim.uid:
                continue
            self._bind(claim.name, volume["metadata"]["name"])

    def work(self, nodes: dict[str, Json]) -> None:
        """Do all that is due, as a volume controller and a provisioner without faults."""
        self.end_claims()
        self.bind_taken()
        for claim in self.asked():
            (self.provision if claim.selected in nodes else self.refuse)(claim)

    def places(self, pod: PodState) -> set[str] | None:
        """Return the only nodes where a pod's claims let it go, empty if nowhere; None if anywhere."""
        found: set[str] | None = None
        for claim in self._claims_of(pod):
            if claim is None or claim.is_going:
                return set()
            node = self._node_of(claim.volume) if claim.volume else claim.selected
            if node:
                found = {node} if found is None else found & {node}
        return found

    def wrongs(self, pod: PodState, known_since: str) -> Iterator[str]:
        """Yield what is wrong with binding a pod, given its claims; claims younger than this may be unknown."""
        for claim in self._claims_of(pod):
            if claim is None or claim.created > known_since:
                continue
            if not claim.volume:
                yield f"its claim {claim.name} has no volume"
            elif self._node_of(claim.volume) not in ("", pod.node):
                yield f"volume {claim.volume} cannot be used on {pod.node}"

    def _claims_of(self, pod: PodState) -> Iterator[ClaimState | None]:
        return map(self.claims().get, pod.claims)

    def _node_of(self, volume: str) -> str:
        """Return the only node where a volume can be used; empty if it can on all."""
        spec = self._api.call("GET", f"{_VOLUMES}/{volume}")["spec"]
        if not spec.get("nodeAffinity"):
            return ""
        (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        return str(term["matchExpressions"][0]["values"][0])

    def _make(self, name: str, node: str, claim: str | None) -> None:
        spec: Json = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": _CLASS,
            "csi": {"driver": "csi.x", "volumeHandle": name},
            **({} if (claim or "").startswith(ANYWHERE) else {"nodeAffinity": on(HOST, node)}),
        }
        if claim is not None:
            spec["claimRef"] = {"namespace": "default", "name": claim}
        self._api.call("POST", _VOLUMES, {"metadata": {"name": name}, "spec": spec})
        phase = "Available" if claim is None else "Bound"
        self._api.call("PATCH", f"{_VOLUMES}/{name}/status", {"status": {"phase": phase}}, MERGE)

    def _bind(self, claim: str, volume: str) -> None:
        patch = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}}
        self._patch_claim(claim, patch)

    def _patch_claim(self, name: str, patch: Json) -> None:
        self._api.call("PATCH", f"{_CLAIMS}/{name}", patch, MERGE)
