"""Answer discovery: which groups, versions and kinds exist, and which server this is.

OpenAPI: the schema documents are empty. kubectl then skips validation on its side (a kind that the document lacks is
not validated). That is intended for a server that stores kinds that it does not know.
"""

from devcluster.apiserver.kinds.resources import Catalog, Resource
from devcluster.apiserver.objects import Object

VERSION: Object = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+mooring-devcluster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_HEALTHY = frozenset({"/healthz", "/readyz", "/livez"})
_ROOT_PATHS = ("/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/readyz", "/version")


def text_page(path: str) -> str | None:
    """Return the body of a health page, None for other paths."""
    return "ok" if path in _HEALTHY else None


_FIXED_PAGES: dict[str, Object] = {
    "": {"paths": list(_ROOT_PATHS)},
    "/version": VERSION,
    "/openapi/v2": {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": {},
        "definitions": {},
    },
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
}


def page(catalog: Catalog, path: str) -> Object | None:
    """Return the discovery document at a path, None without one."""
    if (fixed := _FIXED_PAGES.get(path.rstrip("/"))) is not None:
        return fixed
    match path.strip("/").split("/"):
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in catalog.groups().items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group]:
            versions = catalog.groups().get(group)
            return {"apiVersion": "v1", "kind": "APIGroup", **_group(group, versions)} if versions else None
        case ["api", "v1"]:
            return _resources(catalog, "", "v1")
        case ["apis", group, version]:
            return _resources(catalog, group, version)
        case _:
            return None


def _group(name: str, versions: list[str]) -> Object:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _resources(catalog: Catalog, group: str, version: str) -> Object | None:
    served = [one for one in catalog if (one.group, one.version) == (group, version)]
    if not served:
        return None
    listed = [row for one in served for row in (_row(one), *_subresource_rows(one))]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _row(one: Resource) -> Object:
    row: Object = {
        "name": one.plural,
        "singularName": one.singular,
        "namespaced": one.namespaced,
        "kind": one.kind,
        "verbs": ["create"] if one.plural == "bindings" else list(_VERBS),
    }
    if one.short_names:
        row["shortNames"] = list(one.short_names)
    if one.categories:
        row["categories"] = list(one.categories)
    return row


_SUBRESOURCE_KINDS: dict[str, Object] = {
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "log": {"kind": "Pod", "verbs": ["get"]},
    "eviction": {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]},
    "scale": {"kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]},
    "token": {"kind": "TokenRequest", "group": "authentication.k8s.io", "version": "v1", "verbs": ["create"]},
}


def _subresource_rows(one: Resource) -> list[Object]:
    status = {"kind": one.kind, "verbs": ["get", "patch", "update"]}
    return [
        {"name": f"{one.plural}/{name}", "singularName": "", "namespaced": one.namespaced}
        | _SUBRESOURCE_KINDS.get(name, status)
        for name in one.subresources
    ]
