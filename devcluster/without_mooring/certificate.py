"""Make the API server's self-signed certificate: with openssl, for the addresses that clients use."""

import subprocess
from pathlib import Path

from devcluster.without_mooring.etc import API_SERVER


def make(folder: Path) -> tuple[Path, Path]:
    """Return certificate and key; raise CalledProcessError if openssl fails."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "ca.crt", folder / "ca.key"
    names = f"subjectAltName=IP:127.0.0.1,IP:{API_SERVER[0]},DNS:kubernetes.default.svc"
    options = ("-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=devcluster", "-addext", names)
    command = ["openssl", "req", "-x509", *options, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
