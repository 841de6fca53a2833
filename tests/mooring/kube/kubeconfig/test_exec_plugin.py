"""Exec plugins: what they are asked, what they may print, and when they are run again."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.access import AccessError, load_access
from tests.mooring.kube.kubeconfig.test_document import V1, write

Json = dict[str, Any]
# Prints a token that counts its runs, and keeps the request of the last run.
_COUNTS = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
runs = int((folder / "runs").read_text()) + 1 if (folder / "runs").exists() else 1
(folder / "runs").write_text(str(runs))
(folder / "request").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(folder / "extra").write_text(os.environ.get("EXTRA", ""))
(folder / "stdin").write_text(sys.stdin.read())
status = {"token": f"t{runs}", **json.loads(sys.argv[2])}
print(json.dumps({"apiVersion": sys.argv[3], "kind": "ExecCredential", "status": status}))
"""


def plugin(folder: Path, status: Json | None = None, version: str = V1, **fields: Any) -> Json:
    """Return a user with the plugin above."""
    argv = ["-c", _COUNTS, str(folder), json.dumps(status or {}), version]
    values = {"apiVersion": V1, "command": sys.executable, "args": argv, "interactiveMode": "Never"} | fields
    return {"exec": values}


def test_the_plugin_is_told_the_cluster_if_it_asks_for_it(tmp_path: Path) -> None:
    """With the extension of the cluster that is for exec plugins, and its own environment variables."""
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"tls-server-name": "inner", "proxy-url": "http://p:1", "extensions": [extension]}
    user = plugin(tmp_path, env=[{"name": "EXTRA", "value": "v"}], provideClusterInfo=True)
    access = load_access(write(tmp_path / "k", user, cluster))
    assert access.headers() == {"Authorization": "Bearer t1"}
    assert json.loads((tmp_path / "request").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://h:6443",
                "tls-server-name": "inner",
                "proxy-url": "http://p:1",
                "config": {"audience": "a"},
            },
        },
    }
    assert (tmp_path / "extra").read_text() == "v"
    load_access(write(tmp_path / "k", plugin(tmp_path)))
    assert json.loads((tmp_path / "request").read_text())["spec"] == {"interactive": False}


def test_credentials_are_kept_until_they_end_or_are_refused(tmp_path: Path) -> None:
    """A plugin may open a browser: it is not run for each request."""
    access = load_access(write(tmp_path / "k", plugin(tmp_path)))
    assert access.headers() == access.headers() == {"Authorization": "Bearer t1"}
    access.forget()
    assert access.headers() == {"Authorization": "Bearer t2"}
    over = load_access(write(tmp_path / "k", plugin(tmp_path, {"expirationTimestamp": "2020-01-01T00:00:00Z"})))
    assert over.headers() != over.headers()


def test_a_certificate_is_shown_to_the_server(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """It may come in place of a token."""
    crt, key = (path.read_text() for path in certificate)
    status = {"token": "", "clientCertificateData": crt, "clientKeyData": key}
    assert load_access(write(tmp_path / "k", plugin(tmp_path, status))).headers() == {}
    with pytest.raises(AccessError, match="printed only one of certificate and key"):
        load_access(write(tmp_path / "k", plugin(tmp_path, {"token": "", "clientCertificateData": crt})))


def test_a_token_in_the_file_comes_before_the_plugin(tmp_path: Path) -> None:
    """As in client-go, which then does not run it."""
    access = load_access(write(tmp_path / "k", {"token": "t", **plugin(tmp_path)}))
    assert access.headers() == {"Authorization": "Bearer t"}
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"command": "no-such-plugin", "installHint": "brew install\nit"},
            "'no-such-plugin' is not installed: brew in",
        ),
        ({"command": "./beside"}, "/beside' is not installed"),
        ({"args": ["-c", "raise SystemExit(3)"]}, "failed with exit status 3"),
        ({"args": ["-c", "print('{')"]}, "printed no ExecCredential"),
        ({"args": ["-c", "print('{}')"]}, "not an ExecCredential of"),
        (
            {"interactiveMode": "Always"},
            "needs a terminal (interactiveMode Always), but standard input is not a terminal",
        ),
    ],
)
def test_a_plugin_that_gives_nothing_is_a_sentence(
    fields: Json, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hint how to install it."""
    kubeconfig = write(tmp_path / "k", plugin(tmp_path, **fields))
    with (tmp_path / "empty").open("w") as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        with pytest.raises(AccessError) as failed:
            load_access(kubeconfig)
    assert why in str(failed.value)


@pytest.mark.parametrize(("mode", "is_asked"), [("IfAvailable", True), ("Always", True), ("Never", False)])
def test_a_person_at_a_terminal_may_be_asked(mode: str, is_asked: bool, tmp_path: Path) -> None:
    """The plugin reads what the person types."""
    ours, theirs = os.openpty()
    kept = os.dup(0)
    try:
        os.dup2(theirs, 0)
        os.write(ours, b"yes\n\x04")
        with os.fdopen(os.dup(0)) as terminal, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", terminal)
            load_access(write(tmp_path / "k", plugin(tmp_path, interactiveMode=mode)))
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, ours, theirs):
            os.close(descriptor)
    assert (tmp_path / "stdin").read_text() == ("yes\n" if is_asked else "")
    assert json.loads((tmp_path / "request").read_text())["spec"]["interactive"] is is_asked
