"""Run inside the lab: mooring-node sets this very host up, under a real systemd with stand-ins for runtime and kubelet.

Prints one JSON object of what was seen after each command. The folder that is given has two releases' runtimes; in the
second one the shim ends at once. The stand-ins run by this repository's Python, Mooring by the runtime alone.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.lab.inside.systemd_scenario import Systemd, until, write_program

# Not below /tmp, which a system that boots empties.
PLACE = Path("/run/lab")
UNITS, LOG = Path("/etc/systemd/system"), PLACE / "asked"
RUNTIME = "unix:///run/containerd/containerd.sock"
SOCKET, RECORD = Path("/run/mooring/cri.sock"), Path("/run/mooring/extract/shim-bypass.json")
FLAGS = Path("/var/lib/kubelet/kubeadm-flags.env")
FLANNEL = '{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel"}]}'
# A kubelet's calls: it requests the runtime's version, at the socket of its configuration, and then its state.
KUBELET = f"""\
import grpc, sys, time
channel = grpc.insecure_channel(sys.argv[1].partition("=")[2])
channel.unary_unary("/runtime.v1.RuntimeService/Version")(b"", timeout=20)
open({str(LOG)!r}, "a").write(sys.argv[1].partition("=")[2] + chr(10))
while True:
    try:
        channel.unary_unary("/runtime.v1.RuntimeService/Status")(b"", timeout=20)
    except grpc.RpcError:
        pass
    time.sleep(1)
"""
SERVICE = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart={}\n{}"
SMALL = ("--folder", f"{PLACE}/small", "--cni-bin", f"{PLACE}/bin", "--cni-conf", f"{PLACE}/conf")


def make_host() -> None:
    """Let /etc and /opt be written; have a runtime and a kubelet as units."""
    PLACE.mkdir()
    for command in ("mount -t tmpfs tmpfs /opt", f"cp -a /etc {PLACE}", f"mount --bind {PLACE}/etc /etc"):
        subprocess.run(command.split(), check=True)
    for path in (FLAGS, Path("/etc/cni/net.d/10-flannel.conflist")):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Debian's has its CNI plugins below /usr, which is read-only here.
    Path("/etc/containerd/config.toml").unlink(missing_ok=True)
    FLAGS.write_text(f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint={RUNTIME}"\n')
    Path("/etc/cni/net.d/10-flannel.conflist").write_text(FLANNEL)
    write_program(Path("/opt/runtime"), sys.executable, "-m", "devcluster.runtime", "--listen", RUNTIME, *SMALL)
    write_program(Path("/opt/kubelet"), sys.executable, "-c", KUBELET)
    Path("/run/containerd").mkdir()
    (UNITS / "lab.target").write_text(
        "[Unit]\nDescription=lab\nDefaultDependencies=no\nWants=containerd.service kubelet.service\n"
    )
    here = f"WorkingDirectory={Path.cwd()}\n"
    (UNITS / "containerd.service").write_text(SERVICE.format("/opt/runtime", here))
    restarts = f"EnvironmentFile={FLAGS}\nRestart=always\nRestartSec=1\n"
    (UNITS / "kubelet.service").write_text(SERVICE.format("/opt/kubelet $KUBELET_KUBEADM_ARGS", restarts))


def tree() -> dict[str, str]:
    """Return the files of /etc and /var/lib that the installation may touch."""
    folders = (UNITS, Path("/etc/cni"), Path("/etc/udev"), Path("/etc/modules-load.d"), FLAGS.parent, Path("/opt/cni"))
    paths = [path for folder in folders if folder.exists() for path in sorted(folder.rglob("*"))]
    return {str(path): path.read_text(errors="replace") if path.is_file() else "" for path in paths}


def told() -> str:
    return "".join(LOG.read_text().splitlines()[-1:]) if LOG.exists() else ""


def reported() -> str:
    """Return what the check has left for the advertiser of the kubelet."""
    path = Path("/run/mooring/extract/node-check.json")
    return str(json.loads(path.read_text())["kubelet"]) if path.exists() else "nothing"


def main(releases: Path) -> None:
    make_host()
    systemd = Systemd()
    until(lambda: told() == RUNTIME)
    before = tree()

    def node(*words: str, release: str = "first") -> tuple[int, str]:
        done = systemd.run(str(releases / release / "bin/mooring-node"), *words, "--node-name", "n1")
        return done.returncode, done.stdout + done.stderr

    installed = node("install")
    until(lambda: told() != RUNTIME)
    seen: dict[str, object] = {"install": installed, "told": told(), "check": node("check")}
    seen["limit"] = systemd.ask("systemctl", "show", "--value", "-p", "LimitMEMLOCK", "containerd.service")
    systemd.ask("systemctl", "stop", "mooring-cni.service")
    seen["stopped"] = node("check")
    seen["mended"] = [systemd.ask("systemctl", "start", "mooring-cni.service"), *node("check")]
    seen["timer"] = systemd.ask("systemctl", "is-active", "mooring-node-check.timer")
    seen["reported"] = [systemd.ask("systemctl", "start", "mooring-node-check.service"), reported()]
    seen["bypass_on"] = node("bypass", "on")
    until(lambda: told() == RUNTIME)
    systemd.ask("systemctl", "start", "mooring-node-check.service")
    seen["bypassed"] = [*node("check"), reported()]
    systemd.ask("systemctl", "stop", "mooring-cri-shim.service")
    seen["bypass_off"] = node("bypass", "off")
    until(lambda: told() != RUNTIME)
    seen["through"] = node("check")
    systemd.ask("systemctl", "stop", "mooring-cri-shim.service")
    until(SOCKET.is_symlink)
    seen["failed"] = [str(SOCKET.readlink()), *node("check")]
    seen["again"] = systemd.ask("systemctl", "start", "mooring-cri-shim.service")
    until(lambda: not RECORD.exists())
    seen["served"] = [SOCKET.is_socket(), *node("check")]
    seen["upgrade"] = node("upgrade", release="second")
    seen["rolled_back"] = node("check")
    seen["remove"] = node("remove")
    until(lambda: told() == RUNTIME)
    seen["left"] = sorted(path for path in {*before, *tree()} if before.get(path) != tree().get(path))
    seen["units"] = systemd.ask("systemctl", "list-units", "--no-legend", "--plain", "mooring-*")
    systemd.end()
    print(json.dumps({"seen": seen}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
