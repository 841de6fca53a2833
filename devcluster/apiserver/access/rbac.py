"""Authorization by RBAC's Roles and their bindings, as a real server reads them.

Left out: aggregated ClusterRoles, the check against granting rights that the user lacks, and rules for non-resource
paths (discovery and health are open to all).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from devcluster.apiserver import status
from devcluster.apiserver.access.identity import User
from devcluster.apiserver.call import Call
from devcluster.apiserver.objects import Object, items, section
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.store import Entry, Storage, Store

_GROUP = "rbac.authorization.k8s.io"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_ONE_NAME = re.compile(r"metadata\.name==?([^,]+)")


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a request; `resource` names a subresource too (`pods/binding`), absent names are empty."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def attributes_of(call: Call) -> Attributes:
    """Read a call as RBAC sees it."""
    target = call.target
    name = target.name or _selected_name(call)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    return Attributes(_verb(call), target.group, resource, target.namespace or "", name)


def _verb(call: Call) -> str:
    if call.method == "GET":
        return "get" if call.target.name else "watch" if call.watching else "list"
    if call.method == "DELETE":
        return "delete" if call.target.name else "deletecollection"
    return _VERBS.get(call.method, call.method.lower())


def _selected_name(call: Call) -> str:
    """Return the one name that a list or watch selects by field: then it requests that object only."""
    selected = _ONE_NAME.fullmatch(call.query.get("fieldSelector", ""))
    return selected[1] if selected and call.method == "GET" else ""


def allows(rules: Iterable[Object], asked: Attributes) -> bool:
    """Return whether one of a role's rules covers the request."""
    return any(_covers(rule, asked) for rule in rules)


def _covers(rule: Object, asked: Attributes) -> bool:
    _, _, subresource = asked.resource.partition("/")
    resources = {"*", asked.resource, *([f"*/{subresource}"] if subresource else [])}
    names = rule.get("resourceNames") or []
    return (
        not {"*", asked.verb}.isdisjoint(rule.get("verbs") or ())
        and not {"*", asked.group}.isdisjoint(rule.get("apiGroups") or ())
        and not resources.isdisjoint(rule.get("resources") or ())
        and (not names or asked.name in names)
    )


def check(store: Store, user: User, asked: Attributes) -> None:
    """Raise 403 in a real server's words unless a role bound to the user allows it."""
    if not user.is_master and not any(allows(rules, asked) for rules in _rules(store, user, asked.namespace)):
        raise _forbidden(user, asked)


def _forbidden(user: User, asked: Attributes) -> ApiError:
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'cannot {asked.verb} resource "{asked.resource}" in API group "{asked.group}" {where}'
    return status.forbidden(asked.group, asked.resource.partition("/")[0], asked.name, f'User "{user.name}" {what}')


def _rules(store: Store, user: User, namespace: str) -> Iterator[Sequence[Object]]:
    """Yield the rules of each role that is bound to a user, for the whole cluster or in this namespace."""
    for entry in _entries(store, "clusterrolebindings"):
        yield _bound_rules(store, entry, user)
    for entry in _entries(store, "rolebindings") if namespace else ():
        if entry.namespace == namespace:
            yield _bound_rules(store, entry, user)


def _entries(store: Store, plural: str) -> list[Entry]:
    return list(store.collection((_GROUP, plural)).entries.values())


def _bound_rules(store: Store, entry: Entry, user: User) -> Sequence[Object]:
    binding = entry.decoded()
    if not any(_is(subject, user) for subject in items(binding, "subjects")):
        return ()
    reference = section(binding, "roleRef")
    of_cluster = reference.get("kind") == "ClusterRole"
    storage: Storage = (_GROUP, "clusterroles" if of_cluster else "roles")
    role = store.get(storage, "" if of_cluster else entry.namespace, str(reference.get("name")))
    return items(role.decoded(), "rules") if role is not None else ()


def _is(subject: Object, user: User) -> bool:
    name = subject.get("name")
    match subject.get("kind"):
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace')}:{name}"
        case "Group":
            return name in user.groups
        case _:
            return name == user.name
