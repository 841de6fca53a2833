"""What a kubeconfig may hold, what its files become together, and what is refused by name."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from mooring.kube.access import AccessError, load_access

Json = dict[str, Any]
SERVER = "https://h:6443"
V1 = "client.authentication.k8s.io/v1"


def write(path: Path, user: Json | None = None, cluster: Json | None = None) -> str:
    """Write a kubeconfig of one context; return its path."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        (
            {"auth-provider": {"name": "azure"}},
            {},
            "user 'u': auth-provider 'azure' is not one of gcp, oidc: use an exec plugin",
        ),
        ({"as-groups": ["g"]}, {}, "user 'u': as-uid, as-groups and as-user-extra need as"),
        ({"token": "t", "username": "n", "password": "p"}, {}, "token and username or password are both given"),
        ({"client-certificate": "f"}, {}, "user 'u': client-certificate has no client-key"),
        ({"exec": {"apiVersion": V1, "interactiveMode": "Never"}}, {}, "user 'u': exec.command is missing"),
        ({"exec": {"apiVersion": V1, "command": "c"}}, {}, "exec.interactiveMode: None is not one of Never,"),
        (
            {"exec": {"apiVersion": V1, "command": "c", "interactiveMode": "Some"}},
            {},
            "exec.interactiveMode: 'Some' is not one of Never, IfAvailable, Always",
        ),
        ({"exec": {"apiVersion": f"{V1}alpha1", "command": "c"}}, {}, f"exec.apiVersion: '{V1}alpha1' is neither"),
        (
            {"exec": {"apiVersion": V1, "command": "c", "interactiveMode": "Never", "env": [{"value": "v"}]}},
            {},
            "exec.env has an entry without name",
        ),
        ({}, {"server": ""}, "cluster 'c': server is missing"),
        ({}, {"insecure-skip-tls-verify": True, "certificate-authority": "f"}, "insecure-skip-tls-verify and a certif"),
        ({}, {"certificate-authority-data": "%"}, "certificate-authority-data is not base64"),
        ({}, {"certificate-authority": "f", "certificate-authority-data": "YQ=="}, "are both given"),
        (
            {},
            {"proxy-url": "socks5://p:1080"},
            "proxy-url 'socks5://p:1080': the URL of a proxy must begin with http://",
        ),
        ({"tokenFile": "none"}, {}, "No such file or directory"),
        ({"token": 5}, {}, "Expected `str | null`, got `int`"),
    ],
)
def test_what_is_not_honoured_or_contradicts_itself_is_refused_by_name(
    user: Json, cluster: Json, why: str, tmp_path: Path
) -> None:
    """Where client-go refuses it too, and where it is not supported here."""
    with pytest.raises(AccessError) as refused:
        load_access(write(tmp_path / "k", user, cluster))
    assert why in str(refused.value)


def test_impersonation_becomes_headers_of_every_request(tmp_path: Path) -> None:
    """A group each, and an extra's key escaped, as client-go does."""
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.com/reason": ["a", "b"]},
    }
    assert load_access(write(tmp_path / "k", user)).fixed_headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.com%2Freason", "a"),
        ("Impersonate-Extra-example.com%2Freason", "b"),
    )


def test_the_fields_of_a_cluster_count(tmp_path: Path) -> None:
    """Its name for TLS, its proxy, and that answers are not compressed."""
    cluster = {"tls-server-name": "inner", "proxy-url": "http://p:3128", "disable-compression": True}
    access = load_access(write(tmp_path / "k", {}, cluster))
    assert access.server_name == "inner"
    assert access.proxy is not None
    assert (access.proxy.host, access.proxy.port) == ("p", 3128)
    assert access.fixed_headers == (("Accept-Encoding", "identity"),)


def test_the_environments_proxy_counts_where_the_file_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    monkeypatch.setenv("NO_PROXY", "")
    proxy = load_access(write(tmp_path / "k")).proxy
    assert proxy is not None
    assert proxy.host == "p"
    monkeypatch.setenv("NO_PROXY", "h")
    assert load_access(write(tmp_path / "k")).proxy is None


def test_of_several_files_the_first_that_has_an_entry_counts(tmp_path: Path) -> None:
    """Nothing of the second file's entry is taken; paths are relative to the file that has them."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/token").write_text("of-sub")
    first = write(tmp_path / "sub/a", {"tokenFile": "token"})
    second = write(tmp_path / "b", {"token": "second", "as": "jane"})
    access = load_access(f"{first}:{second}")
    assert access.headers() == {"Authorization": "Bearer of-sub"}
    assert access.fixed_headers == ()


def test_a_password_becomes_a_header_and_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    basic = base64.b64encode(b"n:p").decode()
    access = load_access(write(tmp_path / "k", {"username": "n", "password": "p"}))
    assert access.headers() == {"Authorization": f"Basic {basic}"}
    document = json.loads((tmp_path / "k").read_text())
    document["users"] *= 2
    (tmp_path / "k").write_text(json.dumps(document))
    with pytest.raises(AccessError, match="users has two entries with the name 'u'"):
        load_access(str(tmp_path / "k"))


@pytest.mark.parametrize("part", ["cluster", "user"])
def test_a_context_that_names_what_is_not_there_is_refused(part: str, tmp_path: Path) -> None:
    path = write(tmp_path / "k")
    document = json.loads((tmp_path / "k").read_text())
    document["contexts"][0]["context"][part] = "none"
    (tmp_path / "k").write_text(json.dumps(document))
    with pytest.raises(AccessError, match=f"context 'x': {part} 'none' is missing"):
        load_access(path)
