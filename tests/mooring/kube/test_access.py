"""Where the API server is, by kubectl's own configuration."""

import json
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.access import AccessError, context_namespace, load_access


def _write(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return str(path)


def test_a_plain_http_server_needs_nothing_else(tmp_path: Path) -> None:
    """devcluster's server on loopback needs only its address."""
    access = load_access(_write(tmp_path / "k", {"server": "http://127.0.0.1:8001/"}, {}))
    assert (access.server, access.tls, dict(access.headers())) == ("http://127.0.0.1:8001", None, {})


def test_a_token_becomes_a_bearer_header(tmp_path: Path) -> None:
    """Requests go over TLS, verified unless the file disables it."""
    cluster = {"server": "https://h:6443"}
    access = load_access(_write(tmp_path / "k", cluster, {"token": "t"}))
    assert access.headers() == {"Authorization": "Bearer t"}
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED
    lax = load_access(_write(tmp_path / "k", cluster | {"insecure-skip-tls-verify": True}, {}))
    assert lax.tls is not None
    assert lax.tls.verify_mode == ssl.CERT_NONE


def test_a_token_file_may_end_with_a_line_break(tmp_path: Path) -> None:
    """An editor or echo writes one; in a header it would be refused."""
    (tmp_path / "token").write_text("t\n")
    user = {"tokenFile": str(tmp_path / "token")}
    access = load_access(_write(tmp_path / "k", {"server": "https://h:6443"}, user))
    assert access.headers() == {"Authorization": "Bearer t"}


def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    """The loader runs the plugin, as cloud providers need it."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "e"}}
    script = tmp_path / "plugin.py"
    script.write_text(f"print({json.dumps(json.dumps(credential))})")
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "interactiveMode": "Never",
    }
    access = load_access(_write(tmp_path / "k", {"server": "https://h:6443"}, {"exec": plugin}))
    assert access.headers() == {"Authorization": "Bearer e"}


@pytest.mark.parametrize("text", ["", "{", "[]", "kind: Config", "\x00"])
def test_a_file_that_is_not_a_kubeconfig_is_an_access_error(text: str, tmp_path: Path) -> None:
    """The error names the file; no other exception is raised."""
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(AccessError, match="cannot be used"):
        load_access(str(path))


def _write_contexts(path: Path, names: Sequence[str], current: str | None) -> str:
    """Write a kubeconfig with these contexts, each with a namespace named like it."""
    contexts = [{"name": name, "context": {"cluster": "c", "namespace": f"of-{name}"}} for name in names]
    clusters = [{"name": "c", "cluster": {"server": "http://h"}}]
    path.write_text(json.dumps({"clusters": clusters, "contexts": contexts, "current-context": current}))
    return str(path)


@pytest.mark.parametrize(
    ("context", "current", "why"),
    [
        ("lap", "lab", "it has no context 'lap'; its contexts are 'lab', 'prod';"),
        (None, "old", "it has no context 'old', which is its current-context; its contexts are 'lab', 'prod';"),
        (None, None, "it has no current-context, and its contexts are 'lab', 'prod';"),
    ],
)
def test_of_a_context_that_is_not_there_all_that_are_are_named(
    context: str | None, current: str | None, why: str, tmp_path: Path
) -> None:
    """The loader says which object of which list it had expected."""
    path = _write_contexts(tmp_path / "k", ["lab", "prod"], current)
    with pytest.raises(AccessError, match=f"^kubeconfig '{path}' cannot be used: {why}"):
        load_access(path, context)


def test_the_contexts_of_several_files_count(tmp_path: Path) -> None:
    """KUBECONFIG may name files with colons between them, of which some may be missing."""
    files = [_write_contexts(tmp_path / name, [name], None) for name in ("a", "b")]
    kubeconfig = ":".join([*files, "/none"])
    with pytest.raises(AccessError, match="no context 'c'; its contexts are 'a', 'b';"):
        load_access(kubeconfig, "c")
    assert load_access(kubeconfig, "b").server == "http://h"
    assert context_namespace(kubeconfig, "b") == "of-b"


@pytest.mark.parametrize("current", ["prod", "old", None])
def test_a_named_context_has_its_namespace_whatever_the_current_one_is(current: str | None, tmp_path: Path) -> None:
    """Some remove the current context, so that each command has to name one."""
    path = _write_contexts(tmp_path / "k", ["lab", "prod"], current)
    assert context_namespace(path, "lab") == "of-lab"
    assert context_namespace(path) == ("of-prod" if current == "prod" else "default")


@pytest.mark.parametrize("text", ["", "[]", "contexts: [1]", "contexts: [{name: a, context: 1}]", "\x00"])
def test_the_namespace_of_what_is_not_a_kubeconfig_is_the_default(text: str, tmp_path: Path) -> None:
    """Whatever is wrong with the file is said when the API server is looked for."""
    path = tmp_path / "k"
    path.write_text(text)
    assert context_namespace(str(path), "a") == "default"


def test_a_missing_file_is_an_access_error(tmp_path: Path) -> None:
    """The file was named, so no other one is tried."""
    with pytest.raises(AccessError, match=f"kubeconfig '{tmp_path}/none' cannot be used: it does not exist;"):
        load_access(str(tmp_path / "none"))


def test_the_reason_of_a_file_that_is_no_yaml_is_one_line(tmp_path: Path) -> None:
    """The YAML reader's own message has several."""
    path = tmp_path / "k"
    path.write_text("not: [yaml\n")
    with pytest.raises(AccessError) as found:
        load_access(str(path))
    assert "\n" not in str(found.value)
    assert "expected ',' or ']'" in str(found.value)


def test_without_a_kubeconfig_the_default_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the value of KUBECONFIG, or ~/.kube/config."""
    monkeypatch.setenv("KUBECONFIG", "/none/config")
    with pytest.raises(AccessError, match=r"kubeconfig '/none/config' cannot be used: it does not exist;"):
        load_access(None)
