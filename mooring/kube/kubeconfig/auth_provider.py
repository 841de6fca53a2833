"""Get the token of a user with an auth-provider (`oidc`, `gcp`) from the loader of the package `kubernetes`.

The loader reads the token, renews it five minutes before it expires, with the issuer or a command, and writes the new
one into the kubeconfig, because an issuer may accept each refresh token only once.

Our own code reads the rest of a kubeconfig, because importing the library takes 0.4 s for each command, and the library
(37.0.2, kubernetes/config/kube_config.py and exec_provider.py) differs from client-go:

- `KubeConfigMerger` uses the last file's current-context, and drops a second entry of the same name in a file.
- `token` takes precedence over `tokenFile`, which is read only once and with its line break.
- It ignores impersonation and disable-compression. It configures proxies for urllib3, but our requests use aiohttp and
  our own connections.
- `ExecProvider` ignores installHint and interactiveMode, and checks whether standard output is a terminal. Plugins get
  the authority's path instead of its data. If a plugin fails, it logs an error and sends requests without credentials.
  It never renews a certificate from a plugin.
"""

import os
import ssl
import threading
from pathlib import Path
from typing import Any

from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.kube.kubeconfig.kubeconfig_file import load_file

PROVIDERS = ("gcp", "oidc")
# The setting with the certificate authority of the issuer.
_AUTHORITY = "idp-certificate-authority"
_AUTHORITY_DATA = "idp-certificate-authority-data"
# The client calls this from several threads: the first one renews the token, and the others read it.
_LOCK = threading.Lock()


def provider_token(files: str, user: str) -> str:
    """Return a valid token of a user in the kubeconfig files; raise KubeconfigError.

    This can send a request to the issuer. The files are read each time, because another program may have renewed the
    token.
    """
    try:
        with _LOCK:
            header = _authorization(files, user)
    # The library raises errors of urllib3, requests and oauthlib, and a KeyError for a missing field.
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise KubeconfigError(f"user {user!r}: the auth-provider returns no token: {why}") from error
    if not header:
        raise KubeconfigError(f"user {user!r}: the auth-provider returns no token: none of its tokens is a JWT")
    return header.removeprefix("Bearer ")


def _authorization(files: str, user: str) -> str:
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    # The library reads YAML without bounds.
    for file in filter(os.path.exists, files.split(os.pathsep)):
        load_file(Path(file))
    merger = KubeConfigMerger(files)
    users = merger.config.value["users"]
    provider = next(entry.value for entry in users if entry.value["name"] == user)["user"]["auth-provider"]
    provider["config"] = provider.get("config") or {}
    old_config = dict(provider["config"])
    is_assumed = provider["name"] == "oidc" and _assume_authority(provider["config"])

    def save() -> None:
        if is_assumed:
            del provider["config"][_AUTHORITY]
        # If the issuer answers with an error, the loader keeps the old token.
        if provider["config"] == old_config:
            raise KubeconfigError("it was not renewed")
        merger.save_changes()

    # A cluster and a user without certificates, because the loader would write them to files.
    document = {
        "clusters": [{"name": "none", "cluster": {}}],
        "contexts": [{"name": "only", "context": {"cluster": "none", "user": user}}],
        "users": users,
    }
    configuration = Configuration()
    KubeConfigLoader(document, "only", config_persister=save, config_base_path=None).load_and_set(configuration)
    return str(configuration.api_key.get("BearerToken", ""))


def _assume_authority(settings: dict[str, Any]) -> bool:
    """If no authority is given, make the loader verify the issuer with the system's; return whether none was given.

    The loader would not verify it at all (`_refresh_oidc` in kubernetes/config/kube_config.py); client-go does.
    """
    if settings.get(_AUTHORITY) or settings.get(_AUTHORITY_DATA):
        return False
    # On a system without that file no issuer is trusted.
    settings[_AUTHORITY] = ssl.get_default_verify_paths().cafile or os.devnull
    return True
