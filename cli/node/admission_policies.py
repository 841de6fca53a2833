"""Check before an installation that the admission policies exist and are bound.

Uses only the standard library, because mooring-node needs nothing else, and the kubelet's kubeconfig, which every node
has: `manifests/base/guard` lets nodes read the policies by name. From a kubeconfig it reads only what kubelets use: the
server, its CA, and a client certificate or a token, as files or as data.
"""

import base64
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

from mooring.kube.guard import BINDING, BINDINGS_PATH, POLICIES, POLICIES_PATH, POLICY, PolicyState, judge_documents
from mooring.kube.kubeconfig.errors import KubeconfigError
from mooring.kube.kubeconfig.kubeconfig_file import load_file
from mooring.parsing import decode

# kubeadm, k3s and RKE2, EKS.
KUBECONFIGS = (
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/kubelet/kubeconfig",
)
_ANSWER_S = 10.0
_LONGEST = 1 << 20
_NOT_FOUND = 404


def read_policies(kubeconfig: Path | None) -> Mapping[str, PolicyState]:
    """Return each policy's state; ``unknown``, with the reason, without a kubeconfig, permission or answer."""
    if kubeconfig is None:
        return dict.fromkeys(
            POLICIES, PolicyState("unknown", "the kubelet's kubeconfig was not found: name one with --kubeconfig")
        )
    try:
        with _opener(kubeconfig) as (opener, server, headers):
            return {name: _read(opener, server, headers, name) for name in POLICIES}
    except KubeconfigError as error:
        return dict.fromkeys(POLICIES, PolicyState("unknown", f"kubeconfig {error}"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, HTTPException) as error:
        return dict.fromkeys(POLICIES, PolicyState("unknown", f"kubeconfig {str(kubeconfig)!r}: {error}"))


def _read(opener: urllib.request.OpenerDirector, server: str, headers: Mapping[str, str], name: str) -> PolicyState:
    found: list[Mapping[str, Any] | None] = []
    for path, kind in ((POLICIES_PATH, POLICY), (BINDINGS_PATH, BINDING)):
        try:
            asked = urllib.request.Request(f"{server}{path}/{name}", headers=dict(headers))
            with opener.open(asked, timeout=_ANSWER_S) as answer:
                document = decode(answer.read(_LONGEST))
            # Check the kind: an empty object would count as a policy that denies.
            if not isinstance(document, dict) or document.get("kind") != kind:
                return PolicyState("unknown", f"GET {path}/{name}: incomplete answer: not a {kind}")
            found.append(document)
        except urllib.error.HTTPError as error:
            if error.code != _NOT_FOUND:
                return PolicyState("unknown", f"GET {path}/{name}: {error.code} {error.reason}")
            found.append(None)
        except (OSError, ValueError, HTTPException) as error:
            return PolicyState("unknown", f"GET {path}/{name}: {error}")
    return judge_documents(name, *found)


@contextmanager
def _opener(kubeconfig: Path) -> Iterator[tuple[urllib.request.OpenerDirector, str, Mapping[str, str]]]:
    """Yield opener, server URL and headers; raise an error of many classes for a bad kubeconfig."""
    config = load_file(kubeconfig)
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"] or {}
    with tempfile.TemporaryDirectory(prefix="mooring-node-") as folder:
        tls = _tls(cluster, user, kubeconfig.parent, Path(folder))
        # Ignore proxies of our environment, because the kubelet does not use them.
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        token = user.get("token") or _text(user, "tokenFile", kubeconfig.parent)
        headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        yield urllib.request.build_opener(*handlers), str(cluster["server"]).rstrip("/"), headers


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], base: Path, folder: Path) -> ssl.SSLContext:
    authority = _file(cluster, "certificate-authority", base, folder)
    context = ssl.create_default_context(cafile=str(authority) if authority else None)
    certificate, key = (_file(user, name, base, folder) for name in ("client-certificate", "client-key"))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def _file(section: Mapping[str, Any], name: str, base: Path, folder: Path) -> Path | None:
    """Return the file that an entry names, or write its inline data into a file in ``folder`` and return that."""
    if data := section.get(f"{name}-data"):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        return path
    return base / section[name] if section.get(name) else None


def _text(section: Mapping[str, Any], name: str, base: Path) -> str:
    return (base / section[name]).read_text() if section.get(name) else ""


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = next((entry for entry in entries if entry.get("name") == name), None)
    if found is None:
        raise ValueError(f"it has no entry {name!r}")
    return found
