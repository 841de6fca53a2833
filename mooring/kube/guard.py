"""Decide whether Mooring's admission policies (the guard) exist and are bound to deny.

Without them, users who can create pods or patch nodes can write an assignment or an inventory. Each policy is a
ValidatingAdmissionPolicy with a ValidatingAdmissionPolicyBinding of the same name, as in `manifests/base/guard`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

POLICIES = (
    "mooring-assignment",
    "mooring-bindings",
    "mooring-groups",
    "mooring-interfaces",
    "mooring-inventory",
    "mooring-kinds",
)
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES_PATH, BINDINGS_PATH = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
State = Literal["bound", "missing", "unbound", "unknown"]
STATES: tuple[State, ...] = ("bound", "missing", "unbound", "unknown")


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """A ValidatingAdmissionPolicyBinding: its policy, its actions, and whether `matchResources` exempts anything."""

    policy: str
    actions: frozenset[str]
    is_limited: bool = False


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The state of a policy; ``why`` is what is wrong or why the state is unknown, empty if the policy is bound."""

    state: State
    why: str = ""


def exempts(match_resources: Mapping[str, Any] | None) -> bool:
    """Return whether a binding's matchResources exclude objects that its policy matches; empty fields do not."""
    limits = ("namespaceSelector", "objectSelector", "resourceRules", "excludeResourceRules")
    return any((match_resources or {}).get(limit) for limit in limits)


def judge(name: str, failure_policy: str | None, bindings: Iterable[PolicyBinding]) -> PolicyState:
    """Return the state of a policy from its failurePolicy (None: the policy is missing) and the bindings."""
    if failure_policy is None:
        return PolicyState("missing", "ValidatingAdmissionPolicy is missing")
    if failure_policy == "Ignore":
        return PolicyState("unbound", "failurePolicy is Ignore: writes that it cannot evaluate are accepted")
    deny_bindings = [binding for binding in bindings if binding.policy == name and "Deny" in binding.actions]
    if not deny_bindings:
        return PolicyState("unbound", "no ValidatingAdmissionPolicyBinding with the action Deny refers to it")
    if all(binding.is_limited for binding in deny_bindings):
        return PolicyState("unbound", "matchResources of its ValidatingAdmissionPolicyBinding exempts objects")
    return PolicyState("bound")


def judge_documents(name: str, policy: Mapping[str, Any] | None, binding: Mapping[str, Any] | None) -> PolicyState:
    """Return the state of a policy from its API object and its binding's; None for an object that does not exist."""
    failure_policy = None if policy is None else str(_spec(policy).get("failurePolicy") or "Fail")
    spec = _spec(binding or {})
    actions = spec.get("validationActions")
    policy_binding = PolicyBinding(
        str(spec.get("policyName") or ""),
        frozenset(map(str, actions if isinstance(actions, list) else ())),
        exempts(match_resources if isinstance(match_resources := spec.get("matchResources"), dict) else None),
    )
    return judge(name, failure_policy, [policy_binding] if binding is not None else [])


def _spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = document.get("spec")
    return spec if isinstance(spec, dict) else {}
