"""The two ways in which captures are collected, run for real: the Job's command on a simulated host, and ssh."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.plugin.assess.collect import captures_of, in_folder
from cli.plugin.assess.job import manifests
from devcluster.hosts.layout import Layout
from devcluster.processes import Processes, free_ports
from tests.support.polling import wait_until

pytestmark = pytest.mark.root
PAGE = Path(__file__).parents[4] / "docs/assess.md"
# What the kubelet has, of which the test reads a pool.
_KUBELET = {"Data": {"RegisteredDevices": {"openshift.io/rail0": ["0000:04:00.2"]}}, "Checksum": 1}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Layout]:
    """Start one simulated host with GPUs."""
    processes = Processes(tmp_path / "logs")
    layout = Layout.at(tmp_path, "n1")
    try:
        command = ("devcluster.hosts", "up", "--root", str(tmp_path), "--vfs", "8", "--node", "n1", "--gpus-on", "n1")
        processes.start("hosts", [sys.executable, "-m", *command])
        processes.await_ready("hosts", layout.description.exists)
        yield layout
    finally:
        processes.stop()


def test_the_jobs_command_captures_a_host(host: Layout, tmp_path: Path) -> None:
    """As its manifest says: its mounts, all read-only, in the host's network, as root without any capability."""
    (job,) = manifests(["n1"], "kube-system", "registry.example/mooring-advertiser:1")["items"]
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    plugins = tmp_path / "device-plugins"
    plugins.mkdir()
    (plugins / "kubelet_internal_checkpoint").write_text(json.dumps(_KUBELET))
    places = {"/sys": host.sys, "/proc/driver": host.proc / "driver", "/var/lib/kubelet/device-plugins": plugins}
    folders = {volume["name"]: places[volume["hostPath"]["path"]] for volume in spec["volumes"]}
    mounts = []
    for mount in container["volumeMounts"]:
        inside = f"{tmp_path}{mount['mountPath']}"
        Path(inside).mkdir(parents=True)
        mounts.append(f"mount --bind {folders[mount['name']]} {inside} && mount -o remount,bind,ro {inside}")
    arguments = [one.replace("/host/", f"{tmp_path}/host/") for one in container["args"]]
    without = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    script = " && ".join([*mounts, 'exec "$@"'])
    enter = ("nsenter", f"--net={host.netns}", "unshare", "--mount", "sh", "-c", script, "sh")
    command = [*enter, *without, sys.executable, "-m", "advertiser", *arguments]
    written = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert spec["hostNetwork"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (capture,) = read_back(written.stdout, tmp_path / "nodes").values()
    assert [pf.name for pf in capture.inventory.inventory.pfs] == ["enp4s0f0", "enp4s0f1"]
    assert capture.use.pools == {"openshift.io/rail0": ("0000:04:00.2",)}
    assert (len(capture.use.gpus), capture.use.gpus_out) == (4, {})


def read_back(text: bytes, folder: Path) -> dict[str, Any]:
    """Return the captures in a folder, after one more as the pipes of the documentation write it."""
    folder.mkdir(exist_ok=True)
    decoded = subprocess.run(["base64", "-d"], input=text, capture_output=True, check=True).stdout
    (folder / "n1.tar.gz").write_bytes(decoded)
    captures, failed = captures_of(in_folder(str(folder), ["n1"]), lambda _what, _count: None)
    assert failed == {}
    return dict(captures)


@pytest.mark.sshd
def test_the_command_of_the_page_collects_over_ssh(tmp_path: Path) -> None:
    """A runtime's archive goes to the node's stdin, its capture comes back, and nothing of it stays there."""
    found = re.search(r"^    (n=n1; ssh root@.*?nodes/\$n\.tar\.gz)$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    archive = re.search(r"<(mooring-node-\S+\.tar\.gz)", found[1])
    assert archive is not None
    write_runtime(tmp_path, archive[1])
    (tmp_path / "nodes").mkdir()
    kept = tmp_path / "remote"
    kept.mkdir()
    with ssh_server(tmp_path, kept) as config:
        (tmp_path / "bin").mkdir()
        wrapper = tmp_path / "bin/ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        wrapper.chmod(0o755)
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", found[1]], cwd=tmp_path, env={"PATH": path}, check=True, timeout=120
        )
    captures, failed = captures_of(in_folder(str(tmp_path / "nodes"), ["n1"]), lambda _what, _count: None)
    assert (list(captures), failed) == (["n1"], {})
    assert captures["n1"].use is not None
    assert list(kept.iterdir()) == []


def write_runtime(folder: Path, name: str) -> None:
    """Write an archive as a release's, whose program is that of this repository."""
    program = folder / "mooring-0.0.0/bin/mooring-advertiser"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\ncd {PAGE.parents[1]} && exec {sys.executable} -m advertiser "$@"\n')
    program.chmod(0o755)
    subprocess.run(["tar", "-czf", name, "mooring-0.0.0"], cwd=folder, check=True)
    shutil.rmtree(folder / "mooring-0.0.0")


@contextmanager
def ssh_server(folder: Path, kept: Path) -> Iterator[Path]:
    """Run sshd on loopback with a port and keys of its own; yield a configuration by which n1 is this machine."""
    for key in ("host", "own"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (port,) = free_ports(1)
    server, client = folder / "sshd_config", folder / "ssh_config"
    server.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/own.pub\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSetEnv TMPDIR={kept}\n"
    )
    known = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"n1 {known}")
    client.write_text(
        f"Host n1\nHostName 127.0.0.1\nPort {port}\nHostKeyAlias n1\nIdentityFile {folder}/own\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {folder}/known_hosts\nStrictHostKeyChecking yes\nBatchMode yes\n"
    )
    # It insists on a folder below /run.
    script = 'mount -t tmpfs sshd /run && mkdir /run/sshd && exec "$@"'
    command = [shutil.which("sshd") or "sshd", "-D", "-e", "-f", str(server)]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh", *command], stderr=log)
        try:
            await_port(port, process, folder / "sshd.log")
            yield client
        finally:
            process.terminate()
            process.wait()


def await_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, "sshd listens")
