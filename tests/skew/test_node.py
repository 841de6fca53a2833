"""mooring-node of both releases on one host: its journal, and what each makes of the other's installation."""

from pathlib import Path

import pytest

from tests.cli.node.conftest import KUBEADM, NodeHost
from tests.skew.earlier import VERSION, Earlier

KUBELET = "/var/lib/kubelet/kubeadm-flags.env"
# A return leaves what the earlier release does not know; docs/operations.md removes it.
LEFT = {
    "etc/systemd/system/mooring-init.path",
    "etc/systemd/system/mooring-init.service",
    "etc/systemd/system/mooring-shim-bypass.service",
    "etc/systemd/system/multi-user.target.wants/mooring-init.path",
    "etc/systemd/system/multi-user.target.wants/mooring-init.service",
    "etc/systemd/system/multi-user.target.wants/mooring-shim-bypass.service",
    "etc/udev/rules.d/79-mooring-init.rules",
}


@pytest.fixture
def kubeadm(tmp_path: Path) -> NodeHost:
    host = NodeHost(tmp_path / "host")
    for path, text in {"/opt/mooring/versions/.keep": "", "/var/lib/.keep": "", **KUBEADM}.items():
        host.write(path, text)
    return host


def run_earlier(earlier: Earlier, host: NodeHost, command: str, *flags: str) -> str:
    script = "import sys\nfrom cli.node.__main__ import main\nsys.exit(main())"
    return earlier.run(script, command, "--root", str(host.root), "--node-name", "n1", *flags)


def earlier_wheelhouse(earlier: Earlier, host: NodeHost) -> str:
    """Return a wheelhouse of the earlier release, which is built already."""
    folder = host.root.parent / "earlier-wheels"
    folder.mkdir()
    (folder / f"mooring-{VERSION}-py3-none-any.whl").write_text("earlier")
    script = "import sys, pathlib\nfrom cli.node.venv import release_of\nprint(release_of(pathlib.Path(sys.argv[1])))"
    built = host.root / "opt/mooring/versions" / earlier.run(script, str(folder)).strip()
    (built / "bin").mkdir(parents=True)
    (built / "complete").write_text(f"{VERSION}\n")
    return str(folder)


def test_a_node_is_upgraded_and_returned_and_its_kubelet_keeps_its_files(earlier: Earlier, kubeadm: NodeHost) -> None:
    """The earlier release reads the later one's journal, finds its own files again, and removes all of them."""
    before = kubeadm.tree()
    old, new = earlier_wheelhouse(earlier, kubeadm), str(kubeadm.wheelhouse("wheels"))
    run_earlier(earlier, kubeadm, "install", "--wheelhouse", old)
    installed, kubelet = kubeadm.tree(), kubeadm.text(KUBELET)
    status, said = kubeadm.run("upgrade", "--wheelhouse", new)
    assert status == 0, said
    assert kubeadm.text(KUBELET) == kubelet
    run_earlier(earlier, kubeadm, "upgrade", "--wheelhouse", old)
    assert kubeadm.text(KUBELET) == kubelet
    returned = kubeadm.tree()
    units = {path for path in returned.keys() - installed.keys() if "/cni/" not in path}
    assert units == LEFT
    assert "all is as it was installed" in run_earlier(earlier, kubeadm, "check")
    for path in sorted(LEFT, reverse=True):
        (kubeadm.root / path).unlink()
    run_earlier(earlier, kubeadm, "remove")
    assert kubeadm.tree() == before
