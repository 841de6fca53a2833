"""The user of a request: bearer tokens, and the service accounts that they were made for (TokenRequest).

A token is an opaque text here, where a real server signs a JWT. Its claims about the user are the same, including the
node of the pod or node that it is bound to. It ends with its time, its account, or the object that it is bound to.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from devcluster.apiserver import status
from devcluster.apiserver.objects import Object, metadata_of, section, timestamp
from devcluster.apiserver.store.store import Entry, Storage, Store

ACCOUNTS: Storage = ("", "serviceaccounts")
_BOUND: Mapping[str, Storage] = {"Pod": ("", "pods"), "Node": ("", "nodes")}
_DEFAULT_S = 3600
_MASTERS = "system:masters"
_EXTRA = "authentication.kubernetes.io"


@dataclass(frozen=True, slots=True)
class User:
    """A user as authorization and admission see it."""

    name: str
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_master(self) -> bool:
        """Return whether RBAC is skipped."""
        return _MASTERS in self.groups

    @property
    def info(self) -> Object:
        """Return it as userInfo for admission."""
        extra = {name: list(values) for name, values in self.extra.items()}
        return {"username": self.name, "groups": list(self.groups), **({"extra": extra} if extra else {})}


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("admin", (_MASTERS, "system:authenticated"))


@dataclass(frozen=True, slots=True)
class _Grant:
    """What a token stands for: until when, and which objects (storage, namespace, name, uid) must exist."""

    user: User
    until: datetime | None = None
    witnesses: tuple[tuple[Storage, str, str, str], ...] = ()


class Tokens:
    """The tokens of a server; `admin` is that of its kubeconfig."""

    def __init__(self) -> None:
        self.admin = secrets.token_urlsafe(24)
        self._grants = {self.admin: _Grant(ADMIN)}

    def user(self, authorization: str, store: Store, now: datetime) -> User:
        """Return the user of an Authorization header, anonymous if it is empty; raise 401."""
        if not authorization:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        # Case-insensitive (RFC 9110, section 11.1): the in-cluster loader of PyPI's client writes it in lower case.
        grant = self._grants.get(token) if scheme.lower() == "bearer" else None
        if grant is None or (grant.until is not None and now >= grant.until):
            raise status.unauthorized()
        for storage, namespace, name, uid in grant.witnesses:
            entry = store.get(storage, namespace, name)
            if entry is None or entry.uid != uid:
                raise status.unauthorized()
        return grant.user

    def request(self, store: Store, account: Entry, asked: Object, now: datetime) -> Object:
        """Answer a TokenRequest for a service account; raise 404 or 409 for the object that it is bound to."""
        spec = section(asked, "spec")
        bound = _bound(store, account, section(spec, "boundObjectRef"))
        until = now + timedelta(seconds=int(spec.get("expirationSeconds") or _DEFAULT_S))
        witnesses = [(ACCOUNTS, account.namespace, account.name, account.uid)]
        if bound is not None:
            storage, entry = bound
            witnesses.append((storage, entry.namespace, entry.name, entry.uid))
        token = secrets.token_urlsafe(24)
        self._grants[token] = _Grant(_user(account, bound), until, tuple(witnesses))
        metadata = metadata_of(asked) | {"name": account.name, "namespace": account.namespace}
        answer = {"token": token, "expirationTimestamp": timestamp(until)}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": spec,
            "status": answer,
        }


def _bound(store: Store, account: Entry, reference: Object) -> tuple[Storage, Entry] | None:
    if not reference:
        return None
    kind, name = str(reference.get("kind")), str(reference.get("name"))
    storage = _BOUND.get(kind)
    if storage is None:
        raise status.bad_request(f"cannot bind token to object of type {kind}")
    entry = store.get(storage, account.namespace if kind == "Pod" else "", name)
    if entry is None:
        raise status.not_found(*storage, name)
    if reference.get("uid") not in (None, "", entry.uid):
        why = f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record"
        raise status.conflict("", storage[1], name, f"{why}. The object might have been deleted and then recreated")
    return storage, entry


def _user(account: Entry, bound: tuple[Storage, Entry] | None) -> User:
    extra: dict[str, Sequence[str]] = {}
    if bound is not None:
        (_, plural), entry = bound
        kind = plural.removesuffix("s")
        extra |= {f"{_EXTRA}/{kind}-name": (entry.name,), f"{_EXTRA}/{kind}-uid": (entry.uid,)}
        node = section(entry.decoded(), "spec").get("nodeName") if kind == "pod" else None
        extra |= {f"{_EXTRA}/node-name": (node,)} if node else {}
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{account.namespace}:{account.name}", groups, extra)
