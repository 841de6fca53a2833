"""Whether the kubelet uses the shim, by the calls that the shim has seen and not by what files say."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from cli.node.errors import NodeError
from cli.node.kubelet_calls import RECENT_S, await_call, last_call
from mooring.records import kubelet_call, shim_bypass
from mooring.records.kubelet_call import LastCall, dump_kubelet_call
from mooring.records.shim_bypass import ShimBypass, dump_shim_bypass
from tests.cli.node.conftest import FLAGS, NodeHost
from tests.cli.node.installing import run_install

_FLAGS_AT = "/var/lib/kubelet/kubeadm-flags.env"
_NOT_YET = "the shim has received no call from the kubelet yet"
_NOT_SEEN = "the shim has received no call from the kubelet for 150 s: run systemctl restart kubelet.service"


def _running(host: NodeHost, age_s: float) -> None:
    """Have a kubelet that has run for so long, on a host that is up for a day."""
    ticks = int((86400 - age_s) * os.sysconf("SC_CLK_TCK"))
    host.write("/proc/uptime", "86400.00 1.00\n")
    host.write("/proc/77/stat", f"77 (kube let) S {' '.join(['1'] * 18)} {ticks} 0\n")
    host.write("/proc/77/cgroup", "0::/system.slice/kubelet.service\n")
    host.write("/proc/77/cmdline", "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0"
               "--container-runtime-endpoint=unix:///run/mooring/cri.sock\0--v=2\0")  # fmt: skip


def _called(host: NodeHost, ago_s: float, *, waiting: bool = False) -> None:
    call = LastCall(time.monotonic() - ago_s, waiting)
    host.write(f"/run/mooring/{kubelet_call.NAME}", dump_kubelet_call(call))


def _report(host: NodeHost) -> tuple[str, str]:
    assert host.run("check", "--report")[0] == 0
    report = json.loads(host.text("/run/mooring/extract/node-check.json"))
    return report["kubelet"], report["why"]


@pytest.mark.parametrize(
    ("age_s", "ago_s", "waiting", "reported"),
    [
        (3600.0, 5.0, False, ("shim", "")),
        (3600.0, RECENT_S + 60, False, ("runtime", _NOT_SEEN)),
        (3600.0, None, False, ("runtime", _NOT_SEEN)),
        (20.0, None, False, ("shim", _NOT_YET)),
        (20.0, 30.0, False, ("shim", _NOT_YET)),
        (20.0, 5.0, False, ("shim", "")),
        (RECENT_S + 60, RECENT_S + 90, False, ("runtime", _NOT_SEEN)),
        (3600.0, 5.0, True, ("shim", _NOT_YET)),
        (3600.0, RECENT_S + 60, True, ("runtime", _NOT_SEEN)),
        (20.0, RECENT_S + 60, True, ("shim", _NOT_YET)),
    ],
)
def test_a_kubelet_that_does_not_call_the_shim_is_a_finding(
    kubeadm: NodeHost, age_s: float, ago_s: float | None, waiting: bool, reported: tuple[str, str]
) -> None:
    """Whatever its files say. Where it or the shim has just begun, there may be no call yet, and the report says so."""
    run_install(kubeadm)
    _running(kubeadm, age_s)
    if ago_s is not None:
        _called(kubeadm, ago_s, waiting=waiting)
    said = kubeadm.run("check")[1]
    assert (f"kubelet      kubelet.service: {_NOT_SEEN}\n" in said) == (reported[0] == "runtime")
    assert _report(kubeadm) == reported


@pytest.mark.parametrize(
    ("ago_s", "waiting", "restarts"),
    [(5.0, False, False), (5.0, True, True), (None, False, True), (300.0, False, True)],
)
def test_a_kubelet_that_does_not_call_the_shim_is_started_again_by_an_installation_without_a_change(
    kubeadm: NodeHost, ago_s: float | None, waiting: bool, restarts: bool
) -> None:
    """Its files are right, and its process is of before."""
    run_install(kubeadm)
    _running(kubeadm, 3600.0)
    if ago_s is not None:
        _called(kubeadm, ago_s, waiting=waiting)
    status, said = kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first"))
    assert (status, "systemctl try-restart kubelet.service" in said) == (0, restarts)
    assert ("kubelet      nothing to do" in said) != restarts


def test_a_kubelet_that_calls_the_shim_uses_it_until_its_restart(kubeadm: NodeHost) -> None:
    """Its file names the runtime meanwhile: that is a finding, and after a restart it counts."""
    run_install(kubeadm)
    _running(kubeadm, 3600.0)
    _called(kubeadm, 5.0)
    kubeadm.write(_FLAGS_AT, FLAGS)
    assert f"{_FLAGS_AT}: does not contain" in kubeadm.run("check")[1]
    assert _report(kubeadm) == ("shim", "")
    _running(kubeadm, 2.0)
    state, why = _report(kubeadm)
    assert (state, why.startswith(f"{_FLAGS_AT}: the kubelet is configured with ")) == ("runtime", True)


def test_a_bypass_is_not_reported_as_a_kubelet_that_does_not_call(kubeadm: NodeHost) -> None:
    """The operator has decided so."""
    run_install(kubeadm)
    kubeadm.run("bypass on")
    _running(kubeadm, 3600.0)
    assert _NOT_SEEN not in kubeadm.run("check")[1]
    assert _report(kubeadm)[0] == "bypass"


def test_a_kubelet_that_is_led_past_a_failed_shim_is_reported_as_that(kubeadm: NodeHost) -> None:
    """Not as one that needs a restart."""
    run_install(kubeadm)
    _running(kubeadm, 3600.0)
    kubeadm.write(f"/run/mooring/{shim_bypass.NAME}", dump_shim_bypass(ShimBypass("2026-11-22T14:00:00Z", "it failed")))
    said = kubeadm.run("check")[1]
    assert ("bypassed since 2026-11-22T14:00:00Z: it failed" in said, _NOT_SEEN in said) == (True, False)
    assert _report(kubeadm) == ("shim", "")


def test_a_record_of_calls_that_cannot_be_read_counts_as_none(kubeadm: NodeHost) -> None:
    """The shim writes it again within seconds."""
    run_install(kubeadm)
    _running(kubeadm, 3600.0)
    kubeadm.write(f"/run/mooring/{kubelet_call.NAME}", "{")
    assert _NOT_SEEN in kubeadm.run("check")[1]


def test_install_waits_for_a_call_that_comes_after_the_restart(tmp_path: Path) -> None:
    """One of before does not count, nor that the shim has begun to wait for one."""
    host = NodeHost(tmp_path)
    _called(host, 0.0)
    since_s = time.monotonic()
    _called(host, 0.0, waiting=True)
    later = threading.Timer(0.3, _called, (host, 0.0))
    later.start()
    await_call(tmp_path, since_s, limit_s=60.0)
    later.join()
    call = last_call(tmp_path)
    assert call is not None
    assert (call.at_s >= since_s, call.waiting) == (True, False)


@pytest.mark.systemd
def test_a_kubelet_that_does_not_call_after_its_restart_ends_the_run_in_words(tmp_path: Path) -> None:
    """With the state of its unit and what its process was started with; the run is then taken back."""
    host = NodeHost(tmp_path)
    _called(host, 0.0)
    _running(host, 1.0)
    with pytest.raises(
        NodeError, match="the shim received no call from the kubelet within 0 s of the kubelet's restart"
    ) as no:
        await_call(tmp_path, time.monotonic(), limit_s=0.1)
    socket = "--container-runtime-endpoint=unix:///run/mooring/cri.sock"
    assert f"its process has --config=/var/lib/kubelet/config.yaml {socket}" in str(no.value)
