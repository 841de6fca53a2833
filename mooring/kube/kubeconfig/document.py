"""Merge kubeconfig files into one document, and select and check a context.

Sources, in k8s.io/client-go 1.36: tools/clientcmd/loader.go (which files, the first one wins, relative paths) and
tools/clientcmd/validation.go (which values are invalid).
"""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mooring.kube.kubeconfig.auth_provider import PROVIDERS
from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.kube.kubeconfig.kubeconfig_file import load_file

Entry = TypeVar("Entry", bound="_NamedEntry")
_MODES = ("Never", "IfAvailable", "Always")
API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# A cluster's extension of this name is passed to its exec plugin.
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class _Kebab(msgspec.Struct, rename="kebab"):
    """A part of the document; null and an absent field are equal."""


class Extension(_Kebab):
    name: str = ""
    extension: Any = None


class Cluster(_Kebab):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None

    @property
    def exec_config(self) -> Any:
        """The configuration that the cluster has for its exec plugin; None without one."""
        return next((entry.extension for entry in self.extensions or () if entry.name == _EXEC_EXTENSION), None)


class ExecVariable(_Kebab):
    name: str = ""
    value: str = ""


class ExecPlugin(msgspec.Struct, rename="camel"):
    command: str = ""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    api_version: str = ""
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class User(_Kebab):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    impersonate: str | None = msgspec.field(default=None, name="as")
    impersonate_uid: str | None = msgspec.field(default=None, name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    impersonate_user_extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")
    username: str | None = None
    password: str | None = None
    auth_provider: dict[str, Any] | None = None
    exec: ExecPlugin | None = None


class Context(_Kebab):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedEntry(_Kebab):
    name: str = ""


class _NamedCluster(_NamedEntry):
    cluster: Cluster = msgspec.field(default_factory=Cluster)


class _NamedUser(_NamedEntry):
    user: User = msgspec.field(default_factory=User)


class _NamedContext(_NamedEntry):
    context: Context = msgspec.field(default_factory=Context)


class _Document(_Kebab):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster and the user of a context."""

    cluster: Cluster
    user: User
    user_name: str = ""


@dataclass(slots=True)
class Kubeconfig:
    """The merged document of all files; among entries of the same name the first one wins."""

    clusters: dict[str, Cluster] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)
    current_context: str = ""

    def target(self, context: str | None) -> Target:
        """Return cluster and user of a context (None: the current one); raise KubeconfigError if they are invalid."""
        entry = self.contexts[self._context_name(context)]
        cluster, user = self.clusters.get(entry.cluster or ""), self.users.get(entry.user or "")
        if cluster is None:
            raise KubeconfigError(f"context {context or self.current_context!r}: cluster {entry.cluster!r} is missing")
        if user is None and entry.user:
            raise KubeconfigError(f"context {context or self.current_context!r}: user {entry.user!r} is missing")
        faults = [*_cluster_faults(entry.cluster or "", cluster), *_user_faults(entry.user or "", user or User())]
        if faults:
            raise KubeconfigError("; ".join(faults))
        return Target(cluster, user or User(), entry.user or "")

    def namespace(self, context: str | None) -> str:
        """Return a context's namespace, empty if it has none or does not exist."""
        entry = self.contexts.get(context or self.current_context)
        return (entry.namespace or "") if entry else ""

    def _context_name(self, context: str | None) -> str:
        name = context or self.current_context
        if name in self.contexts:
            return name
        context_names = ", ".join(map(repr, self.contexts)) or "none"
        if not name:
            raise KubeconfigError(f"it has no current-context, and its contexts are {context_names}")
        origin = "" if context else ", which is its current-context"
        raise KubeconfigError(f"it has no context {name!r}{origin}; its contexts are {context_names}")

    def _merge(self, document: _Document, folder: Path) -> None:
        for cluster in _unique(document.clusters, "clusters"):
            self.clusters.setdefault(cluster.name, _absolute(cluster.cluster, folder, ("certificate_authority",)))
        for user in _unique(document.users, "users"):
            paths = ("client_certificate", "client_key", "token_file")
            self.users.setdefault(user.name, _with_plugin(_absolute(user.user, folder, paths), folder))
        for context in _unique(document.contexts, "contexts"):
            self.contexts.setdefault(context.name, context.context)
        self.current_context = self.current_context or document.current_context or ""


def read_kubeconfig(files: Sequence[Path]) -> Kubeconfig:
    """Read and merge existing files; raise KubeconfigError or OSError."""
    kubeconfig = Kubeconfig()
    present = [file for file in files if file.exists()]
    if not present:
        raise KubeconfigError("it does not exist")
    for file in present:
        kubeconfig._merge(_read(file), file.absolute().parent)
    return kubeconfig


def read_data(data: str | None, file: str | None, field_name: str) -> bytes | None:
    """Return the content of a field that is given as base64 or as a file, None without both."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise KubeconfigError(f"{field_name}-data is not base64: {error}") from error
    return Path(file).read_bytes() if file else None


def _read(file: Path) -> _Document:
    try:
        document = load_file(file)
        return msgspec.convert({} if document is None else document, _Document, strict=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise KubeconfigError(f"{file}: {error}") from error


def _unique(entries: Sequence[Entry] | None, list_name: str) -> Iterator[Entry]:
    names: set[str] = set()
    for entry in entries or ():
        if entry.name in names:
            raise KubeconfigError(f"{list_name} has two entries with the name {entry.name!r}")
        names.add(entry.name)
        yield entry


def _absolute(part: Any, folder: Path, names: Sequence[str]) -> Any:
    """Return a part of the document with its paths made absolute."""
    paths = {name: str(folder / value) for name in names if (value := getattr(part, name))}
    return msgspec.structs.replace(part, **paths)


def _with_plugin(user: User, folder: Path) -> User:
    """Return a user whose exec plugin is resolved as in client-go: a name on the PATH, a path relative to the file.

    For an apiVersion before v1, interactiveMode has a default.
    """
    plugin = user.exec
    if plugin is None:
        return user
    command = str(folder / plugin.command) if os.sep in plugin.command else plugin.command
    is_old = plugin.api_version != API_VERSIONS[0]
    mode = plugin.interactive_mode or ("IfAvailable" if is_old else None)
    return msgspec.structs.replace(user, exec=msgspec.structs.replace(plugin, command=command, interactive_mode=mode))


def _cluster_faults(name: str, cluster: Cluster) -> Iterator[str]:
    about = f"cluster {name!r}"
    if not cluster.server:
        yield f"{about}: server is missing"
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield f"{about}: certificate-authority and certificate-authority-data are both given"
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        yield f"{about}: insecure-skip-tls-verify and a certificate-authority are both given"


def _user_faults(name: str, user: User) -> Iterator[str]:
    about = f"user {name!r}"
    if user.token and (user.username or user.password):
        yield f"{about}: token and username or password are both given"
    if (user.client_certificate or user.client_certificate_data) and not (user.client_key or user.client_key_data):
        yield f"{about}: client-certificate has no client-key"
    if user.auth_provider is not None and user.auth_provider.get("name") not in PROVIDERS:
        provider = user.auth_provider.get("name")
        yield f"{about}: auth-provider {provider!r} is not one of {', '.join(PROVIDERS)}: use an exec plugin"
    if user.auth_provider is not None and user.exec is not None:
        yield f"{about}: auth-provider and exec are both given"
    impersonation_fields = (user.impersonate_uid, user.impersonate_groups, user.impersonate_user_extra)
    if any(impersonation_fields) and not user.impersonate:
        yield f"{about}: as-uid, as-groups and as-user-extra need as"
    if user.exec is not None:
        yield from _plugin_faults(f"{about}: exec", user.exec)


def _plugin_faults(about: str, plugin: ExecPlugin) -> Iterator[str]:
    if not plugin.command:
        yield f"{about}.command is missing"
    if plugin.api_version not in API_VERSIONS:
        yield f"{about}.apiVersion: {plugin.api_version!r} is neither {API_VERSIONS[0]} nor {API_VERSIONS[1]}"
    if plugin.interactive_mode not in _MODES:
        yield f"{about}.interactiveMode: {plugin.interactive_mode!r} is not one of {', '.join(_MODES)}"
    if not all(variable.name for variable in plugin.env or ()):
        yield f"{about}.env has an entry without name"


def impersonation(user: User) -> Mapping[str, Sequence[str]]:
    """Return the headers of a user that impersonates another one."""
    if not user.impersonate:
        return {}
    headers: dict[str, Sequence[str]] = {"Impersonate-User": (user.impersonate,)}
    if user.impersonate_uid:
        headers["Impersonate-Uid"] = (user.impersonate_uid,)
    if user.impersonate_groups:
        headers["Impersonate-Group"] = tuple(user.impersonate_groups)
    for key, values in (user.impersonate_user_extra or {}).items():
        headers[f"Impersonate-Extra-{_escape(key)}"] = tuple(values)
    return headers


def _escape(key: str) -> str:
    """Return a key as part of a header's name: % and characters that are not RFC 7230 tokens become %XX.

    Source: headerKeyEscape in transport/round_trippers.go of client-go.
    """
    plain = "!#$&'*+-.^_`|~"
    return "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in plain) else f"%{byte:02X}"
        for byte in key.encode()
    )
