"""What the fake runtime sends to plugins and how it reads their answers."""

import json

import pytest

from devcluster.runtime.cnicalls import (
    Attachment,
    Network,
    NetworkError,
    configuration,
    failure,
    is_gone,
    parse_conflist,
    pod_ips,
    standard_result,
)

_POD = Attachment("c1", "/run/netns/x", "eth0", "default", "p1", "u1", {"a": "b"})
_CAPABLE = {"type": "x", "capabilities": {"io.kubernetes.cri.pod-annotations": True}}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"name":"n","plugins":[]}', '{"name":"n","plugins":[{}]}', '{"name":"n","plugins":[1]}']
)
def test_what_is_not_a_conflist_is_refused(text: str) -> None:
    """Every other document raises the same type of error."""
    with pytest.raises(NetworkError, match="cni config load failed"):
        parse_conflist(text)


def test_a_plugin_without_the_capability_gets_no_runtime_config() -> None:
    """Annotations are passed on request only; prevResult is absent where there is none."""
    network = Network("n", "1.0.0", ({"type": "x"}, _CAPABLE))
    plain, capable = (configuration(network, plugin, _POD, None) for plugin in network.plugins)
    assert plain == {"type": "x", "name": "n", "cniVersion": "1.0.0"}
    assert capable["runtimeConfig"] == {"io.kubernetes.cri.pod-annotations": {"a": "b"}}


def test_addresses_of_other_interfaces_are_not_the_pods() -> None:
    """Only eth0's addresses count, and those that name no interface."""
    result = {
        "interfaces": [{"name": "br0"}, {"name": "eth0"}, {"name": "net1"}],
        "ips": [
            {"address": "10.0.0.2/24", "interface": 1},
            {"address": "10.1.0.2/24", "interface": 2},
            {"address": "::1/128"},
        ],
    }
    assert pod_ips(result, "eth0") == ("10.0.0.2", "::1")


def test_a_result_loses_fields_that_the_specification_does_not_have() -> None:
    """Unknown fields go at the top and inside of interfaces, addresses and routes."""
    answer = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/x", "pciID": "0000:04:00.2"}],
        "ips": [{"interface": 0, "address": "10.0.0.2/24", "gateway": "10.0.0.1", "why": "x"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "mtu": 9000}],
        "devices": [],
    }
    assert standard_result(json.dumps(answer), "1.0.0") == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/x"}],
        "ips": [{"interface": 0, "address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
        "dns": {},
    }


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ('{"code":100,"msg":"m","details":"d"}', "", "m; d"),
        ('{"code":100,"msg":"m"}', "", "m"),
        ("", "boom", "netplugin failed: 'boom'"),
        ("", "", "netplugin failed with no error message"),
        ("Traceback", "", "netplugin failed but error parsing its diagnostic message 'Traceback'"),
    ],
)
def test_a_plugins_failure_is_told_as_libcni_does(stdout: str, stderr: str, expected: str) -> None:
    """Message and details where there is error JSON, else what was printed."""
    assert str(failure("x", "add", stdout, stderr)).startswith(f'plugin type="x" failed (add): {expected}')


def test_a_missing_file_means_gone_only_without_netns() -> None:
    """With its netns still there, a DEL that misses a file is an error like any other."""
    problem = NetworkError("no such file or directory")
    assert (is_gone(problem, ""), is_gone(problem, "/x"), is_gone(NetworkError("not found"), "/x")) == (
        True,
        False,
        True,
    )
