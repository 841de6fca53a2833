"""Forms of the kubelet's files that an edit by text would miss or spoil: installed rightly, or refused in words."""

from typing import Any

import pytest
import yaml

from cli.node.plan.kubelet import CONFIG
from cli.node.plan.kubelet import FLAGS as FLAGS_AT
from cli.node.plan.steps import LISTEN
from tests.cli.node.conftest import FLANNEL, FLANNEL_AT, NodeHost
from tests.cli.node.installing import HostOf, run_install
from tests.cli.node.kubelet_forms import CRIO, RUNTIME

_KIND = "kind: KubeletConfiguration\n"
_KEY = f"containerRuntimeEndpoint: {RUNTIME}\n"
_DEFAULT = "/etc/default/kubelet"
_FLAG = "--container-runtime-endpoint"
_UNIT = "/etc/systemd/system/kubelet.service"

# The file that has to name the shim's socket, its text before, and what that names afterwards.
EDITED = {
    "a quoted value in a flag": (_DEFAULT, f"KUBELET_EXTRA_ARGS='{_FLAG}=\"{RUNTIME}\"'\n"),
    "a flag whose value is on the next line": (_UNIT, f"[Service]\nExecStart=kubelet {_FLAG} \\\n  {RUNTIME} --v=2\n"),
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
    "no newline at the end": (CONFIG, f"{_KIND}{_KEY.rstrip()}"),
}
REFUSED = {
    "a value on the next line": {CONFIG: f"{_KIND}containerRuntimeEndpoint:\n  {RUNTIME}\n"},
    "a folded value": {CONFIG: f"{_KIND}containerRuntimeEndpoint: >-\n  {RUNTIME}\n"},
    "an anchor that others name": {
        CONFIG: f"{_KIND}containerRuntimeEndpoint: &s {RUNTIME}\nimageServiceEndpoint: *s\n"
    },
    "a key in quotes": {CONFIG: f'{_KIND}"containerRuntimeEndpoint": {RUNTIME}\n'},
    "a space before the colon": {CONFIG: f"{_KIND}containerRuntimeEndpoint : {RUNTIME}\n"},
    "the key twice": {CONFIG: f"{_KIND}{_KEY}containerRuntimeEndpoint: {CRIO}\n"},
    "an indented document": {CONFIG: "  kind: KubeletConfiguration\n"},
    "a document in flow style": {
        CONFIG: f"---\n{{kind: KubeletConfiguration, containerRuntimeEndpoint: '{RUNTIME}'}}\n"
    },
    "the end of a document": {CONFIG: f"{_KIND}...\n"},
    "flags that disagree": {
        FLAGS_AT: f'KUBELET_KUBEADM_ARGS="{_FLAG}={RUNTIME}"\n',
        _DEFAULT: f"KUBELET_EXTRA_ARGS={_FLAG}={CRIO}\n",
    },
    "a variable in a flag": {_UNIT: f"ExecStart=kubelet {_FLAG}=$RUNTIME\n"},
    "a file that sets the variable of a drop-in again": {
        _UNIT: "EnvironmentFile=-/etc/default/kubelet\nExecStart=kubelet $KUBELET_EXTRA_ARGS\n",
        _DEFAULT: "KUBELET_EXTRA_ARGS=\n",
    },
}


def _host(host_of: HostOf, files: dict[str, str]) -> NodeHost:
    return host_of({FLANNEL_AT: FLANNEL, **files})


def _shim(host: NodeHost) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(host.text("/etc/mooring/config.yaml"))["mooring-cri-shim"]
    return found


@pytest.mark.parametrize("form", EDITED)
def test_the_kubelet_is_told_the_shims_socket_and_the_shim_the_runtimes(host_of: HostOf, form: str) -> None:
    """Whatever the file's form; a bypass and a removal give back the text that was there."""
    path, text = EDITED[form]
    host = _host(host_of, {CONFIG: _KIND, path: text})
    run_install(host)
    told = yaml.safe_load(host.text(path))["containerRuntimeEndpoint"] if path == CONFIG else host.text(path)
    assert told == (LISTEN if path == CONFIG else text.replace(RUNTIME, LISTEN))
    assert _shim(host)["runtime"] == RUNTIME
    assert host.run("check") == (0, "all is as it was installed\n")
    assert host.run("bypass on")[0] == 0
    assert host.text(path) == text
    assert host.run("bypass off")[0] == 0
    assert host.run("remove")[0] == 0
    assert host.text(path) == text


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_cannot_be_edited_is_refused_and_nothing_is_changed(host_of: HostOf, form: str) -> None:
    """An edit that the kubelet would not read, or not as was meant, would end the node, or let it past the shim."""
    host = _host(host_of, REFUSED[form])
    wheels = host.wheelhouse("first")
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(wheels))
    assert (status, host.tree()) == (1, before)
    assert "container" in said or "KUBELET_EXTRA_ARGS" in said


def test_a_flag_in_a_comment_tells_the_kubelet_nothing(host_of: HostOf) -> None:
    """The configuration counts then."""
    host = _host(host_of, {CONFIG: _KIND + _KEY, _DEFAULT: f"# KUBELET_EXTRA_ARGS={_FLAG}={CRIO}\n"})
    run_install(host)
    assert LISTEN in host.text(CONFIG)
    assert _shim(host) == {"listen": LISTEN, "runtime": RUNTIME}
    assert CRIO in host.text(_DEFAULT)


def test_a_configuration_in_json_is_taken_once_it_names_the_shim(host_of: HostOf) -> None:
    """As the refusal says: set it by hand, then run the command again."""
    host = _host(host_of, {CONFIG: f'{{"kind": "KubeletConfiguration", "containerRuntimeEndpoint": "{RUNTIME}"}}'})
    wheels = str(host.wheelhouse("first"))
    assert "is JSON: set containerRuntimeEndpoint" in host.run("install", "--wheelhouse", wheels)[1]
    host.write(CONFIG, host.text(CONFIG).replace(RUNTIME, LISTEN))
    assert host.run("install", "--wheelhouse", wheels)[0] == 0
    assert host.run("check") == (0, "all is as it was installed\n")


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
