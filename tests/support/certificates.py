"""An authority of a test's own, and the certificates that it signs: made with openssl."""

import subprocess
from pathlib import Path
from typing import NamedTuple

NAME = "mooring-extender.mooring-system.svc"


class Pair(NamedTuple):
    """A certificate, and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate that signs others, all of them in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.own = self._make(name, "-subj", f"/CN={name}")

    def sign(self, name: str) -> Pair:
        """Return a certificate for `NAME` and the loopback address, and its key."""
        by = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key))
        names = ("-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"subjectAltName=DNS:{NAME},IP:127.0.0.1")
        return self._make(name, "-subj", f"/CN={name}", *by, *names)

    def _make(self, name: str, *options: str) -> Pair:
        made = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        how = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        files = ("-out", str(made.certificate), "-keyout", str(made.key))
        subprocess.run(["openssl", "req", "-x509", *how, *options, *files], check=True, capture_output=True)
        return made
