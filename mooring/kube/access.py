"""Find the API server and the credentials for it.

They are read by `kubernetes`' own loader, so that every kubeconfig that kubectl takes works here too: tokens, client
certificates, exec plugins, in-cluster service accounts. Only the loader is used, and it is imported when called: the
generated client costs half a second to import and a millisecond a pod to decode.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class AccessError(Exception):
    """No usable way to an API server: what was tried and why it failed."""


@dataclass(frozen=True, slots=True)
class Access:
    """An API server (``https://host:port``, no slash at the end) and the credentials for it.

    ``headers`` returns the current authorization headers; it may run an exec plugin or read a file, so call it from a
    thread. Tokens expire: call it again every minute and after a 401.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    headers: Callable[[], Mapping[str, str]] = dict


def load_access(kubeconfig: str | None, context: str | None = None) -> Access:
    """Load the kubeconfig named; without one, KUBECONFIG, then in-cluster, then ~/.kube/config. Raise AccessError.

    ``context`` names one of the file's contexts; None is its current one.
    """
    from kubernetes import client, config

    settings = client.Configuration()
    try:
        _load(config, kubeconfig, context, settings)
        tls = _tls(settings) if settings.host.startswith("https") else None
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as unusable:
        files = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
        what = f"kubeconfig {files!r} cannot be used: {_why(config, files, context, unusable)}"
        raise AccessError(f"{what}; another one is named by --kubeconfig or KUBECONFIG") from unusable
    return Access(settings.host.rstrip("/"), tls, settings.tls_server_name, lambda: _headers(settings))


def context_namespace(kubeconfig: str | None, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context, ``default`` if it has none."""
    from kubernetes import config

    contexts, current = _contexts(config, kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION)
    chosen = contexts.get(context or current)
    return str((chosen.get("namespace") if isinstance(chosen, dict) else None) or "default")


def _load(config: Any, kubeconfig: str | None, context: str | None, settings: Any) -> None:
    # The loader's default location holds KUBECONFIG's value where that is set.
    if kubeconfig is None and context is None and config.KUBE_CONFIG_DEFAULT_LOCATION == "~/.kube/config":
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            pass
        else:
            return
    config.load_kube_config(config_file=kubeconfig, context=context, client_configuration=settings)


def _contexts(config: Any, files: str) -> tuple[Mapping[str, Any], str]:
    """Return the contexts of kubeconfig files by name, and the current one's name; none if they cannot be read.

    The loader's own list of them takes a current context that exists.
    """
    try:
        merged = config.kube_config.KubeConfigMerger(files).config.value
        contexts = {str(one.value["name"]): one.value.get("context") for one in merged["contexts"]}
        return contexts, str(merged.get("current-context") or "")
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError):
        return {}, ""


def _why(config: Any, files: str, context: str | None, unusable: Exception) -> str:
    """Return the reason in one line: the loader's, but for files and contexts that are not there."""
    if not any(Path(file).expanduser().exists() for file in files.split(os.pathsep)):
        return "it does not exist"
    contexts, current = _contexts(config, files)
    known = ", ".join(map(repr, contexts))
    if not contexts or (context or current) in contexts:
        return " ".join(str(unusable).split())
    if not (context or current):
        return f"it has no current-context, and its contexts are {known}"
    which = "" if context else ", which is its current-context"
    return f"it has no context {context or current!r}{which}; its contexts are {known}"


def _tls(settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _headers(settings: Any) -> Mapping[str, str]:
    """Return the authorization header; the loader's hook behind the first call refreshes what has expired."""
    token = settings.get_api_key_with_prefix("BearerToken", alias="authorization")
    if not token and settings.username:
        token = settings.get_basic_auth_token()
    return {"Authorization": token.strip()} if token else {}
