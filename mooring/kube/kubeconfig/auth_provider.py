"""The token of a user with an auth-provider (`oidc`, `gcp`), by the loader of the package `kubernetes`.

The loader reads the token, renews it five minutes before it ends, by the issuer or by a command, and writes the new one
to the kubeconfig: an issuer may accept each refresh token only once.

The rest of a kubeconfig is read by our own code, since the import takes 0.4 s for each command, and the library
(37.0.2, kubernetes/config/kube_config.py and exec_provider.py) differs there from client-go:

- `KubeConfigMerger` takes the last file's current-context, and drops a second entry of one name in a file.
- A `token` comes before `tokenFile`, and that is read once and with its line break.
- Impersonation and disable-compression are not read. Proxies are set for urllib3; our requests use aiohttp and
  connections of our own.
- `ExecProvider` ignores installHint and interactiveMode, and asks whether standard output is a terminal. Plugins get
  the authority's path instead of its data. If one fails, an error is logged and requests go without credentials. A
  certificate from a plugin is never renewed.
"""

import os
import ssl
import threading
from typing import Any

from mooring.kube.kubeconfig.errors import KubeconfigError

PROVIDERS = ("gcp", "oidc")
# Of these, one is the certificate authority of the issuer.
_AUTHORITY = "idp-certificate-authority"
_AUTHORITY_DATA = "idp-certificate-authority-data"
# The client asks from several threads: the first one renews the token, and the others read it.
_LOCK = threading.Lock()


def provider_token(files: str, user: str) -> str:
    """Return the token of a user of the kubeconfig files, valid now; raise KubeconfigError.

    It may ask the issuer. The files are read each time: another program may have renewed the token.
    """
    try:
        with _LOCK:
            header = _authorization(files, user)
    # The library hands on the errors of urllib3, requests and oauthlib, and a KeyError where a field is missing.
    except Exception as failed:
        why = " ".join(str(failed).split()) or type(failed).__name__
        raise KubeconfigError(f"user {user!r}: the auth-provider gives no token: {why}") from failed
    if not header:
        raise KubeconfigError(f"user {user!r}: the auth-provider gives no token: it has none that is a JWT")
    return header.removeprefix("Bearer ")


def _authorization(files: str, user: str) -> str:
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    merger = KubeConfigMerger(files)
    users = merger.config.value["users"]
    provider = next(entry.value for entry in users if entry.value["name"] == user)["user"]["auth-provider"]
    provider["config"] = provider.get("config") or {}
    before = dict(provider["config"])
    is_assumed = provider["name"] == "oidc" and _assume_authority(provider["config"])

    def save() -> None:
        if is_assumed:
            del provider["config"][_AUTHORITY]
        # An issuer that answers with an error leaves the loader with the old token.
        if provider["config"] == before:
            raise KubeconfigError("it was not renewed")
        merger.save_changes()

    # A cluster without fields: the loader would write its certificates, and those of the user, to files.
    document = {
        "clusters": [{"name": "none", "cluster": {}}],
        "contexts": [{"name": "only", "context": {"cluster": "none", "user": user}}],
        "users": users,
    }
    configuration = Configuration()
    KubeConfigLoader(document, "only", config_persister=save, config_base_path=None).load_and_set(configuration)
    return str(configuration.api_key.get("BearerToken", ""))


def _assume_authority(settings: dict[str, Any]) -> bool:
    """Have the issuer verified by the system's authorities if no other is given; return whether none was.

    The loader would not verify it at all (`_refresh_oidc` in kubernetes/config/kube_config.py); client-go does.
    """
    if settings.get(_AUTHORITY) or settings.get(_AUTHORITY_DATA):
        return False
    # Of a system without such a file no issuer is trusted.
    settings[_AUTHORITY] = ssl.get_default_verify_paths().cafile or os.devnull
    return True
