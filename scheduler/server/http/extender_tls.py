"""TLS of the extender's server: certificate, key and the clients' CA, as files that may change.

Certificates are renewed while the server runs. At each handshake the files are compared with those read before; if they
differ, that connection and all later ones use the new ones. If the new files cannot be used, for example because a
renewal is incomplete, the previous ones stay in use. No session is resumed, so every client is verified again.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.program.config import ConfigError

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of PEM files; with ``client_ca`` only clients with a certificate of that CA are accepted."""

    certificate: Path
    key: Path
    client_ca: Path | None

    def stamps(self) -> list[tuple[int, int, int]]:
        """Return values that distinguish these files from other versions; raise OSError."""
        stats = (path.stat() for path in (self.certificate, self.key, self.client_ca) if path is not None)
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]

    def context(self) -> ssl.SSLContext:
        """Read the files; raise OSError, of which SSLError is a subclass."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        # A key with a password is rejected, because OpenSSL would prompt for the password on a terminal.
        context.load_cert_chain(self.certificate, self.key, password="")
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _CurrentContext:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._stamps = files.stamps()
        self._fault = ""
        self.context = files.context()

    def renew(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Let a connection whose handshake has begun use the current files."""
        try:
            stamps = self._files.stamps()
            if stamps != self._stamps:
                self.context = self._files.context()
                self._stamps, self._fault = stamps, ""
                _log.info("certificates of the extender reloaded", certificate=str(self._files.certificate))
        except OSError as unusable:
            if str(unusable) != self._fault:
                self._fault = str(unusable)
                _log.warning("certificates of the extender not reloaded", reason=self._fault)
        connection.context = self.context


def server_tls(certificate: str, key: str, client_ca: str) -> ssl.SSLContext | None:
    """Return the context for the server, None for plain HTTP if no file is named; raise ConfigError."""
    if not (certificate or key or client_ca):
        return None
    if not (certificate and key):
        raise ConfigError("TLS of the extender needs a certificate and its key")
    files = Files(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
    try:
        current_context = _CurrentContext(files)
    except OSError as unusable:
        raise ConfigError(f"TLS of the extender: {unusable}") from unusable
    # Python calls this for every connection, also for one without a server name.
    context = current_context.context
    context.sni_callback = current_context.renew
    return context
