"""Run an exec plugin of a kubeconfig: a program that prints credentials.

Source: plugin/pkg/client/auth/exec/exec.go of k8s.io/client-go 1.36. The plugin inherits our stderr and, if it may
prompt the user, our stdin. KUBERNETES_EXEC_INFO has the request.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from mooring.kube.kubeconfig.document import Cluster, ExecPlugin
from mooring.kube.kubeconfig.errors import KubeconfigError


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token, or a client certificate and its key in PEM; ``until`` is the UNIX time of their expiry."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    until: float = float("inf")


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials:
    """The credentials of a plugin, which runs again after they have expired or were rejected."""

    def __init__(
        self,
        plugin: ExecPlugin,
        info: Mapping[str, Any],
        environment: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._plugin = plugin
        self._info = info
        self._environment = environment
        self._clock = clock
        self._current: Credentials | None = None

    def forget(self) -> None:
        """Make the next `get` run the plugin again, because the API server has rejected the credentials."""
        self._current = None

    def get(self) -> Credentials:
        """Return valid credentials; raise KubeconfigError. The plugin can take long and prompt the user."""
        if self._current is None or self._current.until <= self._clock():
            self._current = _run(self._plugin, self._info, self._environment)
        return self._current


def cluster_info(cluster: Cluster, authority: bytes | None, proxy: str) -> Mapping[str, Any]:
    """Return the cluster for KUBERNETES_EXEC_INFO; source: ConfigToExecCluster in rest/exec.go."""
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode() if authority else None,
        "proxy-url": proxy,
        "disable-compression": cluster.disable_compression,
    }
    # The extension is passed on unchanged, even null.
    return {name: value for name, value in info.items() if value} | {"config": cluster.exec_config}


def _run(plugin: ExecPlugin, info: Mapping[str, Any], parent_environment: Mapping[str, str]) -> Credentials:
    name = f"exec plugin {plugin.command!r}"
    spec = {"interactive": _is_interactive(name, plugin)} | ({"cluster": info} if plugin.provide_cluster_info else {})
    request = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {**parent_environment, **{variable.name: variable.value for variable in plugin.env or ()}}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(request)
    stdin = None if spec["interactive"] else subprocess.DEVNULL
    argv = [plugin.command, *(plugin.args or ())]
    try:
        result = subprocess.run(argv, env=environment, stdin=stdin, stdout=subprocess.PIPE, check=False)
    except FileNotFoundError:
        hint = f": {' '.join(plugin.install_hint.split())}" if plugin.install_hint else ""
        raise KubeconfigError(f"{name} is not installed{hint}") from None
    except OSError as error:
        raise KubeconfigError(f"{name} cannot be run: {error.strerror}") from error
    if result.returncode:
        raise KubeconfigError(f"{name} failed with exit status {result.returncode}")
    return _read(name, plugin, result.stdout)


def _is_interactive(name: str, plugin: ExecPlugin) -> bool:
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not is_terminal:
        raise KubeconfigError(f"{name} needs a terminal (interactiveMode Always), but standard input is not a terminal")
    return is_terminal and plugin.interactive_mode != "Never"


def _read(name: str, plugin: ExecPlugin, answer: bytes) -> Credentials:
    try:
        credential = msgspec.json.decode(answer, type=_ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{name} printed no ExecCredential: {error}") from error
    if (credential.kind, credential.api_version) != ("ExecCredential", plugin.api_version):
        description = f"{credential.kind} of {credential.api_version!r}"
        raise KubeconfigError(f"{name} printed a {description}, not an ExecCredential of {plugin.api_version!r}")
    status = credential.status or _Status()
    token, certificate, key = status.token, status.client_certificate_data, status.client_key_data
    if not token and not certificate and not key:
        raise KubeconfigError(f"{name} printed neither a token nor a certificate")
    if bool(certificate) != bool(key):
        raise KubeconfigError(f"{name} printed only one of certificate and key")
    until = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")
    return Credentials(token or "", certificate or "", key or "", until)
