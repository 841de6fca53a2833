"""Auth-providers: the token of the kubeconfig, and its renewal by the issuer or by a command."""

import base64
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from mooring.kube.access import AccessError, load_access
from tests.mooring.kube.kubeconfig.test_document import V1, write

Json = dict[str, Any]
HOUR_S = 3600


def id_token(remaining_s: float, name: str = "jane") -> str:
    """Return a JWT that ends in so many seconds; nobody here checks its signature."""
    parts = ({"alg": "RS256"}, {"sub": name, "exp": int(time.time() + remaining_s)})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, "c2ln"])


def oidc(token: str, **settings: str) -> Json:
    return {"auth-provider": {"name": "oidc", "config": {"id-token": token} | settings}}


def stored(path: Path) -> Json:
    """Return what the kubeconfig holds of its auth-provider."""
    config: Json = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    return config


@contextmanager
def issuer(certificate: tuple[Path, Path], renewed: str, status: int = 200) -> Iterator[str]:
    """Serve an OpenID issuer that takes its refresh token once, and renews the token; yield its URL."""
    spent: list[bytes] = []

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"token_endpoint": f"{url}/token"})

        def do_POST(self) -> None:
            spent.append(self.rfile.read(int(self.headers["Content-Length"])))
            if b"refresh_token=first" not in spent[-1] or len(spent) > 1:
                self.answer({"error": "invalid_grant"}, 400)
                return
            self.answer({"access_token": "a", "token_type": "Bearer", "id_token": renewed, "refresh_token": "second"})

        def answer(self, document: Json, code: int = status) -> None:
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep the requests out of the tests' output."""

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    with HTTPServer(("127.0.0.1", 0), Issuer) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        url = f"https://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


def test_a_token_of_oidc_that_is_valid_is_sent(tmp_path: Path) -> None:
    """The issuer is not asked, and the file stays as it is."""
    token = id_token(HOUR_S)
    path = write(tmp_path / "k", oidc(token, **{"idp-issuer-url": "https://127.0.0.1:1"}))
    before = Path(path).read_bytes()
    assert load_access(path).headers() == {"Authorization": f"Bearer {token}"}
    assert Path(path).read_bytes() == before


def test_a_token_that_ends_soon_is_renewed_by_the_issuer_and_written_to_the_file(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """The refresh token too: an issuer may take each only once."""
    renewed = id_token(HOUR_S, "renewed")
    with issuer(certificate, renewed) as url:
        authority = base64.b64encode(certificate[0].read_bytes()).decode()
        settings = {"idp-issuer-url": url, "client-id": "c", "client-secret": "s", "refresh-token": "first"}
        user = oidc(id_token(60), **settings, **{"idp-certificate-authority-data": authority})
        access = load_access(write(tmp_path / "k", user))
        assert access.headers() == {"Authorization": f"Bearer {renewed}"}
    assert (stored(tmp_path / "k")["id-token"], stored(tmp_path / "k")["refresh-token"]) == (renewed, "second")


def test_an_issuer_without_an_authority_of_its_own_is_verified_by_those_of_the_system(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refresh token and the client's secret are sent to no other server, and the file gets no new field."""
    renewed = id_token(HOUR_S, "renewed")
    with issuer(certificate, renewed) as url:
        settings = {"idp-issuer-url": url, "client-id": "c", "client-secret": "s", "refresh-token": "first"}
        path = write(tmp_path / "k", oidc(id_token(60), **settings))
        with pytest.raises(
            AccessError, match=r"user 'u': the auth-provider returns no token: .*CERTIFICATE_VERIFY_FAI"
        ):
            load_access(path)
        assert stored(tmp_path / "k")["refresh-token"] == "first"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert load_access(path).headers() == {"Authorization": f"Bearer {renewed}"}
    assert set(stored(tmp_path / "k")) == {*settings, "id-token"}


def test_an_issuer_that_does_not_renew_the_token_is_an_error(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """The old token is not sent as if it were a new one."""
    with issuer(certificate, "", status=503) as url:
        settings = {"idp-issuer-url": url, "client-id": "c", "client-secret": "s", "refresh-token": "first"}
        user = oidc(id_token(-HOUR_S), **settings, **{"idp-certificate-authority": str(certificate[0])})
        with pytest.raises(AccessError, match="the auth-provider returns no token: it was not renewed"):
            load_access(write(tmp_path / "k", user))


def test_requests_at_the_same_time_renew_a_token_once(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """The client asks for headers from several threads; the issuer takes the refresh token once."""
    renewed = id_token(HOUR_S, "renewed")
    access = load_access(write(tmp_path / "k", oidc(id_token(HOUR_S))))
    with issuer(certificate, renewed) as url, ThreadPoolExecutor(4) as threads:
        settings = {"idp-issuer-url": url, "client-id": "c", "client-secret": "s", "refresh-token": "first"}
        write(tmp_path / "k", oidc(id_token(60), **settings, **{"idp-certificate-authority": str(certificate[0])}))
        asked = [threads.submit(access.headers) for _ in range(4)]
        assert [one.result() for one in asked] == [{"Authorization": f"Bearer {renewed}"}] * 4


def test_a_token_that_another_program_has_renewed_is_read_from_the_file(tmp_path: Path) -> None:
    """As by kubectl, while the scheduler runs."""
    access = load_access(write(tmp_path / "k", oidc(id_token(HOUR_S))))
    second = id_token(HOUR_S, "second")
    write(tmp_path / "k", oidc(second))
    assert access.headers() == {"Authorization": f"Bearer {second}"}


def test_a_token_of_gcp_is_renewed_by_its_command(tmp_path: Path) -> None:
    answer = {"credential": {"access_token": "new", "token_expiry": "2100-01-01T00:00:00Z"}}
    (tmp_path / "command.py").write_text(f"print({json.dumps(json.dumps(answer))})")
    command = {"cmd-path": sys.executable, "cmd-args": str(tmp_path / "command.py")}
    config = {"access-token": "old", "expiry": "2020-01-01T00:00:00Z"} | command
    access = load_access(write(tmp_path / "k", {"auth-provider": {"name": "gcp", "config": config}}))
    assert access.headers() == {"Authorization": "Bearer new"}
    assert stored(tmp_path / "k")["access-token"] == "new"


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ({"name": "oidc"}, "Expected key id-token"),
        ({"name": "oidc", "config": {"id-token": "no"}}, "none of its tokens is a JWT"),
        ({"name": "oidc", "config": {"id-token": id_token(-HOUR_S)}}, "Expected key idp-issuer-url"),
    ],
)
def test_a_provider_without_a_token_is_an_error(provider: Json, why: str, tmp_path: Path) -> None:
    """No request goes without credentials, where the user has some."""
    with pytest.raises(AccessError, match=f"user 'u': the auth-provider returns no token: .*{why}"):
        load_access(write(tmp_path / "k", {"auth-provider": provider}))


def test_a_token_of_the_user_comes_before_its_provider_and_a_plugin_beside_one_is_refused(tmp_path: Path) -> None:
    """As client-go does."""
    user = oidc(id_token(HOUR_S))
    assert load_access(write(tmp_path / "k", user | {"token": "t"})).headers() == {"Authorization": "Bearer t"}
    plugin = {"apiVersion": V1, "command": "c", "interactiveMode": "Never"}
    with pytest.raises(AccessError, match="user 'u': auth-provider and exec are both given"):
        load_access(write(tmp_path / "k", user | {"exec": plugin}))
