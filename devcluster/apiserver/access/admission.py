"""Admission plugins: ServiceAccount and ValidatingAdmissionPolicy, which know the user, and PodTopologyLabels.

The first two are off by default: a program that is tried alone needs no service accounts. A write without a user is
the server's own.
"""

import secrets
from collections.abc import Iterator
from contextvars import ContextVar

from devcluster.apiserver import status
from devcluster.apiserver.access.identity import ACCOUNTS, User
from devcluster.apiserver.access.policies import CelError, Refusal, Write, concerns, refusals
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import ROOT_CA, Object, items, metadata_of, section
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.store import Store

# The user of the request that is being answered, and the warnings that go with its answer.
ASKING: ContextVar[User | None] = ContextVar("asking", default=None)
WARNINGS: ContextVar[list[str] | None] = ContextVar("warnings", default=None)
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
# A token is requested for so many seconds: kubelets' own hour, and the extra seconds of real servers.
_TOKEN_S = 3607
_GROUP = "admissionregistration.k8s.io"
_NODES = ("", "nodes")
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def give_account(store: Store, namespace: str, pod: Object) -> None:
    """Let a new pod run as its service account, with a token if it wants one; raise 403 without the account."""
    spec = pod["spec"]
    name = spec.setdefault("serviceAccountName", "default")
    account = store.get(ACCOUNTS, namespace, name)
    if account is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise status.forbidden("", "pods", pod["metadata"].get("name") or "", why)
    wanted = spec.get("automountServiceAccountToken", account.decoded().get("automountServiceAccountToken", True))
    if not wanted:
        return
    volume = f"kube-api-access-{secrets.token_hex(3)[:5]}"
    missing = [
        one for one in _containers(spec) if all(m["mountPath"] != TOKEN_FOLDER for m in items(one, "volumeMounts"))
    ]
    for container in missing:
        mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_FOLDER}
        container["volumeMounts"] = [*items(container, "volumeMounts"), mount]
    if missing:
        spec["volumes"] = [*items(spec, "volumes"), {"name": volume, "projected": {"sources": _sources()}}]


def topology_of(store: Store, node: str) -> Object:
    """Return the labels that a pod gets from its node: PodTopologyLabels, on by default since 1.35."""
    entry = store.get(_NODES, "", node)
    labels = section(metadata_of(entry.decoded()), "labels") if entry is not None else {}
    return {key: labels[key] for key in _TOPOLOGY if key in labels}


def _containers(spec: Object) -> Iterator[Object]:
    yield from items(spec, "initContainers")
    yield from items(spec, "containers")


def _sources() -> list[Object]:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_S, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]


def check_policies(
    store: Store, resource: Resource, subresource: str | None, operation: str, new: Object, old: Object | None = None
) -> None:
    """Raise 403 or 422 if a bound policy refuses the write; collect the warnings of those that only warn."""
    user = ASKING.get()
    bindings = store.collection((_GROUP, "validatingadmissionpolicybindings")).entries.values()
    if user is None or not bindings:
        return
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    write = Write(resource.group, plural, operation, user.info, new, old)
    for binding in (entry.decoded() for entry in bindings):
        name = section(binding, "spec").get("policyName", "")
        policy = store.get((_GROUP, "validatingadmissionpolicies"), "", name)
        if policy is not None and concerns(document := policy.decoded(), write):
            _judge(store, document, binding, write)


def _judge(store: Store, policy: Object, binding: Object, write: Write) -> None:
    reference = section(section(binding, "spec"), "paramRef")
    params = store.get(("", "configmaps"), reference.get("namespace", ""), reference["name"]) if reference else None
    try:
        if reference and params is None:
            found = [Refusal("no params found for policy binding with `Deny` parameterNotFoundAction", "Forbidden")]
        else:
            found = list(refusals(policy, params.decoded() if params else None, write))
    except CelError as wrong:
        why = Refusal(f"expression could not be evaluated: {wrong}", "Forbidden")
        found = [] if section(policy, "spec").get("failurePolicy") == "Ignore" else [why]
    # apiserver/pkg/admission/plugin/policy/validating/dispatcher.go, Dispatch: each action takes place.
    actions, names = section(binding, "spec").get("validationActions") or (), _names(policy, binding)
    for refusal in found:
        if "Warn" in actions:
            _warn(f"Validation failed for {names}: {refusal.message}")
        if "Deny" in actions:
            raise _denied(names, write, refusal)


def _warn(text: str) -> None:
    warnings = WARNINGS.get()
    if warnings is not None and text not in warnings:
        warnings.append(text)


def _names(policy: Object, binding: Object) -> str:
    return f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"


def _denied(names: str, write: Write, refusal: Refusal) -> ApiError:
    plural, name = write.resource.partition("/")[0], str(metadata_of(write.object).get("name", ""))
    why = f"{names} denied request: {refusal.message}"
    message = f'{plural} "{name}" is forbidden: {why}'
    # kubectl prints the causes only, where the reason is Invalid. Source: kube-apiserver's
    # admission/plugin/policy/validating/dispatcher.go, Dispatch.
    details = status.details(write.group, plural, name) | {"causes": [{"message": why}]}
    return ApiError(403 if refusal.reason == "Forbidden" else 422, refusal.reason, message, details)
