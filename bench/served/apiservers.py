"""API servers to measure against, over HTTPS on loopback: devcluster's in its own process, and a real one."""

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devcluster.processes import Processes, free_ports
from mooring.kube.access import load_access

_TOKEN = "bench"
# A quiet machine starts a server in 10 s, two cores at load average 14 in more than a minute.
_START_S = 180.0
# Flags of an API server that must not throttle a benchmark.
_IN_FLIGHT = ("--max-requests-inflight", "3000", "--max-mutating-requests-inflight", "1500")


@contextmanager
def devcluster(folder: Path) -> Iterator[Path]:
    """Run devcluster's server below ``folder``; yield a kubeconfig."""
    certificate, key = make_certificate(folder)
    kubeconfig = folder / "kubeconfig"
    processes = Processes(folder / "logs")
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    try:
        processes.start(
            "apiserver",
            [sys.executable, "-m", "devcluster.apiserver", "--kubeconfig", str(kubeconfig), *tls],
        )
        processes.await_ready("apiserver", kubeconfig.exists)
        yield kubeconfig
    finally:
        processes.stop()


@contextmanager
def real(assets: Path, folder: Path, *flags: str) -> Iterator[Path]:
    """Run etcd and kube-apiserver, with ``flags`` more, from ``assets`` below ``folder``; yield a kubeconfig."""
    certificate, _ = make_certificate(folder)
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    etcd, peer, secure = free_ports(3)
    processes = Processes(folder / "logs")
    try:
        processes.start("etcd", _etcd(assets, folder, etcd, peer))
        processes.start("kube-apiserver", [*_kube_apiserver(assets, folder, etcd, secure), *flags])
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(f"https://127.0.0.1:{secure}", certificate))
        processes.await_ready("kube-apiserver", lambda: is_ready(kubeconfig), _START_S)
        yield kubeconfig
    finally:
        processes.stop()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "server.crt", folder / "server.key"
    openssl = shutil.which("openssl")
    if openssl is None:
        raise FileNotFoundError("openssl is not installed, it makes the server's certificate")
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1")
    names = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate))
    subprocess.run([openssl, *made, *names], check=True, capture_output=True)
    return certificate, key


def _etcd(assets: Path, folder: Path, port: int, peer: int) -> Sequence[str]:
    own, others = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    return [
        *(str(assets / "etcd"), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"),
        *("--listen-client-urls", own, "--advertise-client-urls", own, "--listen-peer-urls", others),
        *("--initial-advertise-peer-urls", others, "--initial-cluster", f"default={others}"),
    ]


def _kube_apiserver(assets: Path, folder: Path, etcd: int, port: int) -> Sequence[str]:
    key = str(folder / "server.key")
    accounts = ("--service-account-issuer", "https://mooring.example", "--service-account-key-file", key)
    return [
        *(str(assets / "kube-apiserver"), "--etcd-servers", f"http://127.0.0.1:{etcd}"),
        *("--bind-address", "127.0.0.1", "--secure-port", str(port), "--authorization-mode", "RBAC"),
        *("--tls-cert-file", str(folder / "server.crt"), "--tls-private-key-file", key),
        *("--token-auth-file", str(folder / "tokens.csv"), "--service-cluster-ip-range", "10.0.0.0/24"),
        *("--disable-admission-plugins", "ServiceAccount", *accounts, "--service-account-signing-key-file", key),
        *("--cert-dir", str(folder / "certs"), *_IN_FLIGHT),
    ]


def _kubeconfig(server: str, authority: Path) -> str:
    """Return a kubeconfig, as JSON, which is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {"server": server, "certificate-authority": str(authority)}}],
            "users": [{"name": "bench", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        }
    )


def is_ready(kubeconfig: Path) -> bool:
    """Return whether the server is ready: /readyz."""
    access = load_access(str(kubeconfig))
    request = urllib.request.Request(f"{access.server}/readyz", headers=dict(access.headers()))
    try:
        with urllib.request.urlopen(request, timeout=5, context=access.tls) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def version(assets: Path) -> str:
    """Return what kube-apiserver says of itself."""
    command = [str(assets / "kube-apiserver"), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
