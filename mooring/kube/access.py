"""Find the API server and the credentials for it, as kubectl does.

`mooring.kube.kubeconfig` reads kubeconfigs; the package `kubernetes` handles their auth-providers. A pod without a
kubeconfig uses its service account.
"""

import base64
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from mooring.kube.kubeconfig.auth_provider import provider_token
from mooring.kube.kubeconfig.document import Cluster, Target, User, impersonation, read_data, read_kubeconfig
from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.kube.kubeconfig.exec_plugin import Credentials, ExecCredentials, cluster_info
from mooring.kube.kubeconfig.proxy import Proxy, find_proxy

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT = "~/.kube/config"


class AccessError(Exception):
    """No API server can be accessed; the message has what was tried and why it failed."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server (``https://host:port``, without a final slash) and the credentials for it.

    ``headers`` returns the current authorization headers. It can run an exec plugin or read a file, so call it from a
    thread. Tokens expire: call it again every minute and, after a 401, after ``forget``. It can raise AccessError.
    ``fixed_headers`` are sent with every request; a name can occur several times.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    headers: Callable[[], Mapping[str, str]] = dict
    forget: Callable[[], None] = lambda: None
    fixed_headers: tuple[tuple[str, str], ...] = ()
    proxy: Proxy | None = None


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The identity that a user impersonates; empty fields are taken from the kubeconfig."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""


def load_access(kubeconfig: str | None, context: str | None = None, acts_as: Impersonation | None = None) -> Access:
    """Load a kubeconfig; without one KUBECONFIG, then the service account, then ~/.kube/config. Raise AccessError.

    ``context`` is the name of a context; None is the current one. ``acts_as`` replaces the kubeconfig's impersonation.
    """
    if (
        kubeconfig is None
        and context is None
        and not os.environ.get("KUBECONFIG")
        and (service_account := _in_cluster())
    ):
        files, target = str(SERVICE_ACCOUNT), service_account
    else:
        files = _files(kubeconfig)
        try:
            target = read_kubeconfig(_paths(files)).target(context)
        except (KubeconfigError, OSError) as error:
            raise _unusable(files, error) from error
    if acts_as is not None:
        target = replace(target, user=_impersonate(target.user, acts_as))
    try:
        return _access(target, files)
    except (AccessError, KubeconfigError, OSError, ValueError) as error:
        raise _unusable(files, error) from error


def context_names(kubeconfig: str | None) -> list[str]:
    """Return the names of a kubeconfig's contexts; empty if it cannot be read."""
    try:
        return list(read_kubeconfig(_paths(_files(kubeconfig))).contexts)
    except (KubeconfigError, OSError):
        return []


def context_namespace(kubeconfig: str | None, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context, ``default`` if it has none."""
    try:
        return read_kubeconfig(_paths(_files(kubeconfig))).namespace(context) or "default"
    except (KubeconfigError, OSError):
        return "default"


def _impersonate(user: User, acts_as: Impersonation) -> User:
    """Return a user that acts as another one, by the flags that kubectl calls --as, --as-group and --as-uid."""
    impersonator = msgspec.structs.replace(
        user,
        impersonate=acts_as.user or user.impersonate,
        impersonate_groups=list(acts_as.groups) or user.impersonate_groups,
        impersonate_uid=acts_as.uid or user.impersonate_uid,
    )
    if not impersonator.impersonate and (acts_as.groups or acts_as.uid):
        raise AccessError("--as-group and --as-uid need --as: requesting groups or a uid without impersonating a user")
    return impersonator


def _files(kubeconfig: str | None) -> str:
    return kubeconfig or os.environ.get("KUBECONFIG") or _DEFAULT


def _paths(files: str) -> list[Path]:
    return [Path(file).expanduser() for file in files.split(os.pathsep) if file]


def _unusable(files: str, error: Exception) -> AccessError:
    fault = f"kubeconfig {files!r} cannot be used: {error}"
    return AccessError(f"{fault}; name another one with --kubeconfig or KUBECONFIG")


def _in_cluster() -> Target | None:
    """Return the API server and the service account of the pod that this program runs in, None outside of a pod.

    Source: InClusterConfig in rest/config.go of client-go.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    if not host or not port or not token.is_file() or not authority.is_file():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Target(Cluster(server=server, certificate_authority=str(authority)), User(token_file=str(token)))


def _access(target: Target, files: str) -> Access:
    cluster, user = target.cluster, target.user
    server = (cluster.server or "").rstrip("/")
    server = server if "://" in server else f"http://{server}"
    proxy = find_proxy(server, cluster.proxy_url, os.environ)
    tls = _tls(cluster, user) if server.startswith("https://") else None
    fixed_headers = [(name, value) for name, values in impersonation(user).items() for value in values]
    if cluster.disable_compression:
        fixed_headers.append(("Accept-Encoding", "identity"))
    provider = (lambda: provider_token(files, target.user_name)) if user.auth_provider is not None else None
    bearer = _Bearer(user, provider, _plugin(cluster, user, proxy), tls)
    # Fail now instead of at the first request.
    bearer.headers()
    return Access(
        server, tls, cluster.tls_server_name or None, bearer.headers, bearer.forget, tuple(fixed_headers), proxy
    )


def _plugin(cluster: Cluster, user: User, proxy: Proxy | None) -> ExecCredentials | None:
    if user.exec is None:
        return None
    authority = read_data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    info = cluster_info(cluster, authority, str(proxy.url) if proxy else "")
    return ExecCredentials(user.exec, info, os.environ, time.time)


class _Bearer:
    """The authorization of requests: a token, a password, or credentials of an auth-provider or an exec plugin."""

    def __init__(
        self,
        user: User,
        provider: Callable[[], str] | None,
        plugin: ExecCredentials | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._user = user
        self._provider = provider
        self._plugin = plugin
        self._tls = tls
        self._loaded_credentials = Credentials()

    def forget(self) -> None:
        if self._plugin is not None:
            self._plugin.forget()

    def headers(self) -> Mapping[str, str]:
        try:
            return self._headers()
        except (KubeconfigError, OSError, ValueError) as error:
            raise AccessError(str(error)) from error

    def _headers(self) -> Mapping[str, str]:
        user = self._user
        token = Path(user.token_file).read_text(encoding="utf-8") if user.token_file else user.token
        if token:
            return {"Authorization": f"Bearer {token.strip()}"}
        if user.username or user.password:
            pair = f"{user.username or ''}:{user.password or ''}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        if self._provider is not None:
            return {"Authorization": f"Bearer {self._provider()}"}
        if self._plugin is None:
            return {}
        credentials = self._plugin.get()
        if credentials.certificate and credentials != self._loaded_credentials and self._tls is not None:
            # New connections use the new certificate.
            _load_certificate(self._tls, credentials.certificate.encode(), credentials.key.encode())
            self._loaded_credentials = credentials
        return {"Authorization": f"Bearer {credentials.token}"} if credentials.token else {}


def _tls(cluster: Cluster, user: User) -> ssl.SSLContext:
    authority = read_data(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate = read_data(user.client_certificate_data, user.client_certificate, "client-certificate")
    key = read_data(user.client_key_data, user.client_key, "client-key")
    if certificate and key:
        _load_certificate(context, certificate, key)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate, through a file, because Python cannot load it from memory."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
