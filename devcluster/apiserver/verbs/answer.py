"""Answer one call: find its kind and verb, and write the result in the client's format."""

from collections.abc import Callable, Mapping
from typing import Any

from devcluster.apiserver import status
from devcluster.apiserver.call import Call, Reply
from devcluster.apiserver.cluster import PODS, Cluster
from devcluster.apiserver.formats.views import TableView, View
from devcluster.apiserver.kinds.resources import Resource
from devcluster.apiserver.objects import Object, encode, metadata_of
from devcluster.apiserver.status import ApiError
from devcluster.apiserver.store.listing import Lister, Page
from devcluster.apiserver.store.store import Entry
from devcluster.apiserver.verbs.create import create
from devcluster.apiserver.verbs.delete import DeleteOptions, delete
from devcluster.apiserver.verbs.scale import scale_of, through_scale
from devcluster.apiserver.verbs.subresources import bind, evict
from devcluster.apiserver.verbs.update import patch, patcher, replace

Verb = Callable[[Cluster, Lister, Resource, Call], Reply]


def answer(cluster: Cluster, lister: Lister, call: Call) -> Reply:
    """Carry out any call but a watch; raise ApiError for every failure that a client can cause."""
    resource = find_kind(cluster, call)
    if resource.namespaced and call.target.namespace is None and call.method not in ("GET", "DELETE"):
        raise status.no_such_path()
    return _verb(resource, call)(cluster, lister, resource, call)


def find_kind(cluster: Cluster, call: Call) -> Resource:
    """Return the kind of the call's path; an unknown one is learnt from the object posted."""
    target = call.target
    known = cluster.catalog.find(target.group, target.version, target.plural)
    if known is not None:
        if target.namespace is not None and not known.namespaced:
            raise status.no_such_path()
        return known
    if call.method != "POST" or target.name is not None:
        raise cluster.missing(target.group)
    kind = call.given().get("kind")
    if not isinstance(kind, str) or not kind:
        raise cluster.missing(target.group)
    namespaced = target.namespace is not None
    learnt = Resource(
        target.group, target.version, target.plural, kind, namespaced, generation=True, unconditional=False, learnt=True
    )
    cluster.catalog.learn(learnt)
    return learnt


def _verb(resource: Resource, call: Call) -> Verb:
    name, subresource = call.target.name, call.target.subresource
    if subresource is not None and subresource not in resource.subresources:
        raise status.no_such_path()
    if resource.plural == "bindings" or subresource in _CREATED:
        verbs: dict[str, Verb] = {"POST": _CREATED[subresource or "binding"]}
    elif subresource == "scale":
        verbs = {"GET": _get_scale, "PUT": _replace_scale, "PATCH": _patch_scale}
    elif name is None:
        verbs = {"GET": _list, "POST": _create, "DELETE": _delete_collection}
    else:
        verbs = {"GET": _get, "PUT": _replace, "PATCH": _patch}
        verbs |= {} if subresource else {"DELETE": _delete}
    verb = verbs.get(call.method)
    if verb is None:
        raise status.method_not_allowed()
    return verb


def view_of(cluster: Cluster, resource: Resource, call: Call) -> View:
    """Return the format in which the client wants objects of the kind."""
    if "as=Table" not in call.accept:
        return View(resource)
    return TableView(resource, call.query.get("includeObject", "Metadata"), cluster.clock())


def _key(call: Call) -> tuple[str | None, str]:
    assert call.target.name is not None
    return call.target.namespace, call.target.name


def _get(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    entry = cluster.existing(resource, *_key(call))
    return Reply(200, view_of(cluster, resource, call).one(entry))


def _list(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    selector = call.selector(resource)
    page = lister.page(cluster.collection(resource), selector, cluster.store.revision, call.listing())
    return Reply(200, view_of(cluster, resource, call).page(page))


def _create(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    entry = create(cluster, resource, call.target.namespace, call.given(), call.dry_run)
    return Reply(201, View(resource).one(entry))


def _replace(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    key, obj = _key(call), call.given()
    entry, new = replace(cluster, resource, call.target.subresource, key, obj, call.dry_run)
    return Reply(201 if new else 200, View(resource).one(entry))


def _patch(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    change = patcher(resource, call.content_type, call.parsed())
    entry = patch(cluster, resource, call.target.subresource, _key(call), change, call.dry_run)
    return Reply(200, View(resource).one(entry))


def _get_scale(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    return Reply(200, encode(scale_of(cluster.existing(resource, *_key(call)).decoded())))


def _replace_scale(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    given = call.given()
    return _scaled(cluster, resource, call, lambda _scale: given)


def _patch_scale(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    return _scaled(cluster, resource, call, patcher(resource, call.content_type, call.parsed()))


def _scaled(cluster: Cluster, resource: Resource, call: Call, change: Callable[[Object], Object]) -> Reply:
    entry = patch(cluster, resource, None, _key(call), through_scale(change), call.dry_run)
    return Reply(200, encode(scale_of(entry.decoded())))


def _delete(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    entry = cluster.existing(resource, *_key(call))
    last, gone = delete(cluster, resource, entry, _delete_options(call))
    return Reply(200, _deleted(resource, last, gone))


def _delete_options(call: Call) -> DeleteOptions:
    return DeleteOptions.read(call.options(), call.query.get("gracePeriodSeconds"), call.dry_run)


def _deleted(resource: Resource, last: Entry, gone: bool) -> bytes:
    """Write the object if its kind is returned or it still waits, else a Status that names it."""
    if resource.storage == PODS or not gone:
        return View(resource).one(last)
    named: Object = {**status.details(resource.group, resource.plural, last.name), "uid": last.uid}
    return encode(status.success(200, named))


def _delete_collection(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    options = _delete_options(call)
    entries = cluster.collection(resource).select(call.selector(resource))
    for entry in entries:
        delete(cluster, resource, entry, options)
    return Reply(200, View(resource).page(Page(entries, cluster.store.revision)))


def _bind(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    return _on_pod(bind, cluster, call)


def _evict(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    return _on_pod(evict, cluster, call)


def _token(cluster: Cluster, lister: Lister, resource: Resource, call: Call) -> Reply:
    account = cluster.existing(resource, *_key(call))
    return Reply(201, encode(cluster.tokens.request(cluster.store, account, call.given(), cluster.clock())))


# The subresources that are created instead of being a view of their object.
_CREATED: Mapping[str, Verb] = {"binding": _bind, "eviction": _evict, "token": _token}


def _on_pod(action: Callable[..., None], cluster: Cluster, call: Call) -> Reply:
    body = call.given()
    pod_kind = cluster.catalog.find("", "v1", "pods")
    name: Any = call.target.name or metadata_of(body).get("name")
    if pod_kind is None or not isinstance(name, str):
        raise ApiError(500, "", "metadata.name: Required value")
    action(cluster, pod_kind, call.target.namespace, name, body, call.dry_run)
    return Reply(201, encode(status.success(201)))
