"""Forms of the kubelet's files that an edit by text would miss or spoil: installed rightly, or refused in words."""

import json
from typing import Any

import pytest
import yaml

from cli.node.plan.kubelet.command_line import CONFIG
from cli.node.plan.kubelet.command_line import FLAGS as FLAGS_AT
from cli.node.plan.steps import LISTEN
from tests.cli.node.conftest import FLANNEL, FLANNEL_AT, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.kubelet_forms import CRIO, RUNTIME

_KIND = "kind: KubeletConfiguration\n"
_KEY = f"containerRuntimeEndpoint: {RUNTIME}\n"
_DEFAULT = "/etc/default/kubelet"
_FLAG = "--container-runtime-endpoint"
_SOCKETS = ("containerRuntimeEndpoint", "imageServiceEndpoint")
_UNIT = "/etc/systemd/system/kubelet.service"

_READS_A = {"/usr/lib/systemd/system/kubelet.service": f"[Service]\nExecStart=kubelet --config={CONFIG} $A\n"}

# The file that has to name the shim's socket, and its text before.
EDITED = {
    "a quoted value in a flag": (_DEFAULT, f"KUBELET_EXTRA_ARGS='{_FLAG}=\"{RUNTIME}\"'\n"),
    "a flag whose value is on the next line": (_UNIT, f"[Service]\nExecStart=kubelet {_FLAG} \\\n  {RUNTIME} --v=2\n"),
    "a flag below a comment that names the shim": (
        _DEFAULT,
        f"# {_FLAG}={LISTEN}\nKUBELET_EXTRA_ARGS='{_FLAG}={RUNTIME}'\n",
    ),
    "a flag with underscores": (_UNIT, f"[Service]\nExecStart=kubelet --container_runtime_endpoint={RUNTIME}\n"),
    "a drop-in of this boot": (
        "/run/systemd/system/kubelet.service.d/9.conf",
        f"[Service]\nEnvironment=A={_FLAG}={RUNTIME}\n",
    ),
    "a drop-in of the administrator's own packages": (
        "/usr/local/lib/systemd/system/kubelet.service.d/9.conf",
        f"[Service]\nEnvironment=A={_FLAG}={RUNTIME}\n",
    ),
    "a comment behind the value": (CONFIG, f"{_KIND}{_KEY.rstrip()} # the runtime's\n"),
    "a comment that names the shim": (CONFIG, f"# containerRuntimeEndpoint: {LISTEN}\n{_KIND}{_KEY}"),
    "a value with a tag": (CONFIG, f"{_KIND}containerRuntimeEndpoint: !!str {RUNTIME}\n"),
    "an alias": (CONFIG, f"{_KIND}imageServiceEndpoint: &s {RUNTIME}\ncontainerRuntimeEndpoint: *s\n"),
    "an anchor that others name": (
        CONFIG,
        f"{_KIND}containerRuntimeEndpoint: &s {RUNTIME}\nimageServiceEndpoint: *s\n",
    ),
    "no newline at the end": (CONFIG, f"{_KIND}{_KEY.rstrip()}"),
    "a value on the next line": (CONFIG, f"{_KIND}containerRuntimeEndpoint:\n  {RUNTIME}\n"),
    "a folded value": (CONFIG, f"{_KIND}containerRuntimeEndpoint: >-\n  {RUNTIME}\nfailSwapOn: true\n"),
    "a key in quotes": (CONFIG, f'{_KIND}"containerRuntimeEndpoint": {RUNTIME}\n'),
    "a space before the colon": (CONFIG, f"{_KIND}containerRuntimeEndpoint : {RUNTIME}\n"),
    "an explicit key": (CONFIG, f"{_KIND}? containerRuntimeEndpoint\n: '{RUNTIME}'\n"),
    "tabs between words": (CONFIG, f"{_KIND}containerRuntimeEndpoint:\t{RUNTIME}\t# the runtime's\n"),
    "lines as on Windows": (CONFIG, f"kind: KubeletConfiguration\r\ncontainerRuntimeEndpoint: {RUNTIME}\r\n"),
    "a byte order mark": (CONFIG, f"\ufeff{_KEY}{_KIND}"),
    "a document in flow style": (
        CONFIG,
        f"---\n{{kind: KubeletConfiguration, containerRuntimeEndpoint: '{RUNTIME}'}}\n",
    ),
    "the key deeper too": (CONFIG, f"{_KIND}other:\n  {_KEY}{_KEY}"),
    "another document behind it": (CONFIG, f"{_KIND}{_KEY}---\nkind: Other\n{_KEY.replace('run', 'srv')}"),
    "JSON": (CONFIG, f'{{"kind":"KubeletConfiguration","containerRuntimeEndpoint":"{RUNTIME}","failSwapOn":true}}'),
    "JSON on lines with tabs": (
        CONFIG,
        f'{{\n\t"a": {{"b": [1, "{{"]}},\n\t"containerRuntimeEndpoint":\t"{RUNTIME}"\n}}\n',
    ),
}
# Configurations that do not name a socket, so that the kubelet has containerd's: the key is added.
ADDED = {
    "an empty value": f"containerRuntimeEndpoint:\n{_KIND}",
    "an empty text": f'{_KIND}containerRuntimeEndpoint: ""\n',
    "null in JSON": '{"containerRuntimeEndpoint":null,"kind":"K"}',
    "no key": _KIND,
    "no key and no newline": _KIND.rstrip(),
    "no key, lines as on Windows": "kind: K\r\nz: 1\r\n",
    "no key in JSON": '{\n  "kind": "K",\n  "z": 1\n}\n',
    "an empty object": "{}",
    "an empty file": "",
    "an indented document": "  kind: KubeletConfiguration\n  z: 1\n",
    "the end of a document": f"{_KIND}...\n",
    "another document of the same kind": f"{_KIND}---\n{_KIND}",
    "a merge key": f"x: &d\n  {_KEY.replace('containerd', 'crio')}{_KIND}",
}
# Several places name a socket; the first of them is the one that decides, whose text is then the shim's.
DECIDING = {
    "the last of two flags": {
        _DEFAULT: f"KUBELET_EXTRA_ARGS={_FLAG}={RUNTIME}\n",
        FLAGS_AT: f'KUBELET_KUBEADM_ARGS="{_FLAG}={CRIO}"\n',
    },
    "a flag that the configuration contradicts": {
        FLAGS_AT: f'KUBELET_KUBEADM_ARGS="{_FLAG}={RUNTIME}"\n',
        CONFIG: f"containerRuntimeEndpoint: {CRIO}\n",
    },
    "a flag with a variable": {
        _UNIT: f"[Service]\nEnvironment=S={RUNTIME}\nExecStart=kubelet {_FLAG}=${{S}}\n",
    },
    "the configuration, beside a variable that nothing reads": {
        CONFIG: _KEY,
        "/etc/systemd/system/kubelet.service.d/1.conf": f"[Service]\nEnvironment=UNREAD={_FLAG}={CRIO}\n",
    },
}
REFUSED = {
    "the key twice": {CONFIG: f"{_KIND}{_KEY}containerRuntimeEndpoint: {CRIO}\n"},
    "a value that is no text": {CONFIG: f"{_KIND}containerRuntimeEndpoint: [{RUNTIME}]\n"},
    "a flag in a variable of another use": {
        _UNIT: f"[Service]\nEnvironment=A={_FLAG}={RUNTIME}\nExecStart=kubelet $A --node-labels=a=${{A}}\n"
    },
    "a file that sets the variable of a drop-in again": {
        _UNIT: "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=kubelet $KUBELET_EXTRA_ARGS\n",
        _DEFAULT: "KUBELET_EXTRA_ARGS=\n",
    },
    "a variable of a drop-in that has flags": {
        _UNIT: "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2\nExecStart=kubelet $KUBELET_EXTRA_ARGS\n",
    },
}


def _host(host_of: HostOf, files: dict[str, str]) -> NodeHost:
    return host_of({FLANNEL_AT: FLANNEL, **files})


def _first(text: str) -> dict[str, Any]:
    """Return the first document of a configuration, read without what the installer reads it with."""
    if text.startswith("{"):
        found: dict[str, Any] = json.loads(text)
        return found
    return next(yaml.safe_load_all(text.replace("\t", " ")), {}) or {}


def _shim(host: NodeHost) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(host.text("/etc/mooring/config.yaml"))["mooring-cri-shim"]
    return found


@pytest.mark.parametrize("form", EDITED)
def test_the_kubelet_is_told_the_shims_socket_and_the_shim_the_runtimes(host_of: HostOf, form: str) -> None:
    """Whatever the file's form; nothing else of it changes. A bypass and a removal give back what was there."""
    path, text = EDITED[form]
    host = _host(host_of, {**(_READS_A if "Environment=A" in text else {}), CONFIG: _KIND, path: text})
    run_install(host)
    if path == CONFIG:
        assert _first(host.text(path))["containerRuntimeEndpoint"] == LISTEN
        assert {**_first(text), **dict.fromkeys(_SOCKETS, "")} == {
            **_first(host.text(path)),
            **dict.fromkeys(_SOCKETS, ""),
        }
    else:
        assert host.text(path) == text.replace(RUNTIME, LISTEN)
    assert _shim(host)["runtime"] == RUNTIME
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("bypass on")[0] == 0
    assert host.text(path) == text
    assert host.run("bypass off")[0] == 0
    assert host.run("remove")[0] == 0
    assert host.text(path) == text


@pytest.mark.parametrize("form", ADDED)
def test_a_configuration_without_a_socket_gets_one(host_of: HostOf, form: str) -> None:
    """Its other documents and keys stay; removal gives back the text that was there."""
    host = _host(host_of, {CONFIG: ADDED[form]})
    run_install(host)
    assert _first(host.text(CONFIG)) == {**_first(ADDED[form]), "containerRuntimeEndpoint": LISTEN}
    assert host.text(CONFIG).count(LISTEN) == 1
    assert _shim(host)["runtime"] == "unix:///run/containerd/containerd.sock"
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("remove")[0] == 0
    assert host.text(CONFIG) == ADDED[form]


@pytest.mark.parametrize("form", DECIDING)
def test_of_several_places_the_one_that_decides_is_edited(host_of: HostOf, form: str) -> None:
    """The others stay as they are."""
    files = DECIDING[form]
    host = _host(host_of, {CONFIG: _KIND, **files})
    run_install(host)
    path, *others = files
    assert LISTEN in host.text(path)
    assert {other: host.text(other) for other in others} == {other: files[other] for other in others}
    assert _shim(host)["runtime"] == RUNTIME
    assert host.run("check") == (0, "no findings: the installation is intact\n")


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_cannot_be_edited_is_refused_and_nothing_is_changed(host_of: HostOf, form: str) -> None:
    """An edit that the kubelet would not read, or not as was meant, would end the node, or let it past the shim."""
    host = _host(host_of, REFUSED[form])
    wheels = host.wheelhouse("first")
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(wheels))
    assert (status, host.tree()) == (1, before)
    assert "ontainer" in said or "KUBELET_EXTRA_ARGS" in said


def test_a_flag_in_a_comment_tells_the_kubelet_nothing(host_of: HostOf) -> None:
    """The configuration counts then."""
    host = _host(host_of, {CONFIG: _KIND + _KEY, _DEFAULT: f"# KUBELET_EXTRA_ARGS={_FLAG}={CRIO}\n"})
    run_install(host)
    assert LISTEN in host.text(CONFIG)
    assert _shim(host) == {"listen": LISTEN, "runtime": RUNTIME}
    assert CRIO in host.text(_DEFAULT)


def test_an_edit_leaves_comments_alone_and_gives_back_what_was_there(host_of: HostOf) -> None:
    """Also where the shim's socket is only the beginning of the other one's name."""
    other = f"{LISTEN}.other"
    text = f"# was {_FLAG}={other}\n ; or {_FLAG}={LISTEN}\nKUBELET_EXTRA_ARGS={_FLAG}={other}\n"
    host = _host(host_of, {CONFIG: _KIND, _DEFAULT: text})
    run_install(host)
    assert host.text(_DEFAULT) == text.replace(f"ARGS={_FLAG}={other}", f"ARGS={_FLAG}={LISTEN}")
    assert host.run("check") == (0, "no findings: the installation is intact\n")
    assert host.run("remove")[0] == 0
    assert host.text(_DEFAULT) == text


def test_a_removal_leaves_no_kubelet_at_the_shims_socket_that_another_had_pointed_there(host_of: HostOf) -> None:
    """An image may come with it. The socket goes with the installation."""
    host = _host(host_of, {CONFIG: f"{_KIND}containerRuntimeEndpoint: {LISTEN}\n"})
    run_install(host)
    assert host.run("remove")[0] == 0
    assert host.text(CONFIG) == f"{_KIND}containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"


def test_a_configuration_that_cannot_be_read_any_more_is_a_finding_and_does_not_keep_the_installation(
    host_of: HostOf,
) -> None:
    """Removal gives back what it can."""
    host = _host(host_of, {CONFIG: _KIND + _KEY})
    run_install(host)
    host.write(CONFIG, host.text(CONFIG) + "\t{[\n")
    status, said = host.run("check")
    assert (status, f"{CONFIG}' cannot be read" in said) == (1, True)
    assert host.run("remove")[0] == 0
    assert _KEY in host.text(CONFIG)
