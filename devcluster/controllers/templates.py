"""Make pods from the templates of workloads, as kube-controller-manager does. Pure."""

import hashlib
import json

from devcluster.controllers.writes import Create, Object, collection, owner_reference

TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"


def template_hash(workload: Object) -> str:
    """Return a label value that distinguishes templates."""
    text = json.dumps(workload["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def pod_of(owner: Object, labels: dict[str, str], spec: Object | None = None) -> Create:
    """Return the creation of one pod; ``labels`` are added to the template's, ``spec`` replaces its spec."""
    about, template = owner["metadata"], owner["spec"]["template"]
    metadata = template.get("metadata") or {}
    made: Object = {
        "generateName": f"{about['name']}-",
        "namespace": about["namespace"],
        "labels": {**(metadata.get("labels") or {}), **labels},
        "annotations": metadata.get("annotations") or {},
        "ownerReferences": [owner_reference(owner)],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec or template["spec"]}
    return Create(collection("pods", about["namespace"]), body)
