"""mooring-node on hosts below a folder: what it installs, refuses and takes back."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from cli.node.plan.steps import LISTEN, LISTEN_CRIO
from tests.cli import wheelhouse
from tests.cli.node.conftest import FLAGS, FLANNEL, FLANNEL_AT, KUBEADM, NodeHost
from tests.cli.node.installing import HostOf, run_install

CONFIG = "/var/lib/kubelet/config.yaml"


INSTANCE = "/var/lib/kubelet/instance-config.yaml"


# As kubeadm 1.34 writes them (WriteInstanceConfigToDisk, WriteConfigToDisk).
KUBEADM_CONFIG = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nauthentication:\n  anonymous:\n    enabled: false\n"
    "containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\nkind: KubeletConfiguration\n"
)
KUBEADM_INSTANCE = 'containerRuntimeEndpoint: "unix:///var/run/containerd/containerd.sock"\n'


TOLD = {
    "kubeadm's flags": ({"/var/lib/kubelet/kubeadm-flags.env": FLAGS}, LISTEN),
    "flag of a distribution": (
        {"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=/run/x.sock"},
        LISTEN,
    ),
    "configuration": ({CONFIG: "# ours\nkind: K\ncontainerRuntimeEndpoint: unix:///run/c.sock # c\nz: 1\n"}, LISTEN),
    "configuration that does not say it": ({CONFIG: "kind: K"}, LISTEN),
    "flag in a drop-in": (
        {
            "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=kubelet $A\n",
            "/etc/systemd/system/kubelet.service.d/0.conf": '[Service]\nEnvironment="A=--container-runtime-endpoint unix:///run/c.sock"\n',
        },
        LISTEN,
    ),
    "variable of the unit": (
        {"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=kubelet $KUBELET_EXTRA_ARGS\n"},
        LISTEN,
    ),
    "CRI-O": ({CONFIG: "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n"}, LISTEN_CRIO),
    "kubeadm's own file": ({CONFIG: KUBEADM_CONFIG, INSTANCE: KUBEADM_INSTANCE}, LISTEN),
}


@pytest.mark.parametrize("told", TOLD)
def test_the_kubelet_is_told_the_shims_socket_wherever_it_is_told_one(host_of: HostOf, told: str) -> None:
    """Only the socket's flag is edited, the rest of the file stays; remove puts the host back as it was."""
    files, listen = TOLD[told]
    host = host_of({FLANNEL_AT: FLANNEL, **files})
    before = host.tree()
    run_install(host)
    endpoints = [line for text in host.tree().values() for line in text.splitlines() if listen in line]
    assert any("untimeendpoint" in line.lower().replace("-", "") for line in endpoints)
    assert host.run("check")[0] == 0
    assert host.run("remove")[0] == 0
    assert host.tree() == before


def test_the_shim_is_told_the_socket_that_the_kubelet_was_told(kubeadm: NodeHost) -> None:
    """The programs' configuration names node, shim's socket and the runtime's; another run leaves it as it is."""
    run_install(kubeadm)
    written = yaml.safe_load(kubeadm.text("/etc/mooring/config.yaml"))
    assert written["node_name"] == "n1"
    assert written["mooring-cri-shim"] == {"listen": LISTEN, "runtime": "unix:///run/containerd/containerd.sock"}
    assert kubeadm.run("install", "--wheelhouse", str(kubeadm.root.parent / "first")) == (0, _NOTHING)


_STEPS = ("environment", "quiet", "limits", "services", "network", "kubelet", "check", "install")


_WHY = "the kubelet's kubeconfig was not found: name one with --kubeconfig"


_SAID = f"guard        cannot determine whether all admission policies are bound: {_WHY}\n"


_NOTHING = _SAID + "".join(f"{step:12} nothing to do\n" for step in _STEPS)


def test_a_dry_run_says_each_change_and_makes_none(kubeadm: NodeHost) -> None:
    """A dry run prints what a run then does, path by path, with every restart; and so does that of a removal."""
    wheels, before = str(kubeadm.wheelhouse("first")), kubeadm.tree()
    status, said = kubeadm.run("install", "--wheelhouse", wheels, "--dry-run")
    assert (status, kubeadm.tree()) == (0, before)
    would = [line.replace("would ", "") for line in said.splitlines()]
    done = kubeadm.run("install", "--wheelhouse", wheels)[1].splitlines()
    assert would == [_as_run(line) for line in done[:-1] if "nothing to do" not in line]
    assert "limits       run systemctl try-restart containerd.service" in would
    status, said = kubeadm.run("remove", "--dry-run")
    removed = kubeadm.run("remove")[1].splitlines()
    assert [line.replace("would ", "") for line in said.splitlines()] == [_as_run(line) for line in removed[:-1]]
    edit = "--container-runtime-endpoint=unix:///run/mooring/cri.sock -> "
    assert f"kubelet      would restore /var/lib/kubelet/kubeadm-flags.env: {edit}" in said


def _as_run(line: str) -> str:
    """Return a line about a command as it is where the root folder is the host's own."""
    return re.sub(r"not run because the root folder is \S+:", "run", line)


# The rules of rdma-core 44 on Debian 12, shortened: a comment with an example stands in the original.
PACKAGED = "/usr/lib/udev/rules.d/60-rdma-persistent-naming.rules"


RDMA_RULE = 'ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_FALLBACK"'


IN_ETC = "/etc/udev/rules.d/60-rdma-persistent-naming.rules"


def test_udev_may_be_told_to_leave_the_names_of_vfs(host_of: HostOf) -> None:
    """rdma-core's own policy stays for all but VFs; without the option neither file is made. Removal leaves nothing."""
    host = host_of({**KUBEADM, PACKAGED: f"# Example:\n#\n{RDMA_RULE}\n"})
    before = host.tree()
    run_install(host, "first", "--vf-names", "kernel")
    spared = RDMA_RULE.replace(" PROGRAM", ' TEST!="device/physfn", PROGRAM')
    assert [line for line in host.text(IN_ETC).splitlines() if not line.startswith("#")] == [spared]
    assert "Property=MOORING_VF=1" in host.text("/etc/systemd/network/00-mooring-vfs.link")
    assert 'ENV{MOORING_VF}="1"' in host.text("/etc/udev/rules.d/79-mooring-vfs.rules")
    assert host.run("check")[0] == 0
    assert host.run("remove")[0] == 0
    assert host.tree() == before
    run_install(host, "second")
    assert not any("60-rdma" in path or path.endswith(".link") for path in host.tree().keys() - before.keys())


def test_an_administrators_own_rule_for_rdma_names_is_not_replaced(host_of: HostOf) -> None:
    """The message says what to add to it."""
    host = host_of({**KUBEADM, PACKAGED: RDMA_RULE, IN_ETC: RDMA_RULE.replace("FALLBACK", "KERNEL")})
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")), "--vf-names", "kernel")
    assert status == 1
    assert 'add TEST!="device/physfn" to its rules' in said
    assert host.tree() == before


def test_our_plugin_is_chained_behind_the_first_configuration(kubeadm: NodeHost) -> None:
    """A copy under a name that sorts before it, in a supported version, with the operator's settings of VFs.

    In the owner's version no runtime calls CHECK, so it stays disabled.
    """
    kubeadm.write("/etc/cni/net.d/99-other.conf", '{"name":"other","type":"bridge"}')
    kubeadm.write("/etc/mooring/cni.json", '{"ipam":{"type":"host-local"}}')
    run_install(kubeadm)
    first = sorted(path.name for path in (kubeadm.root / "etc/cni/net.d").iterdir())[0]
    document = json.loads(kubeadm.text(f"/etc/cni/net.d/{first}"))
    ours = document["plugins"].pop()
    assert document == json.loads(FLANNEL) | {"cniVersion": "0.4.0", "disableCheck": True}
    assert ours["ipam"] == {"type": "host-local"}
    assert ours["capabilities"] == {"io.kubernetes.cri.pod-annotations": True}
    assert kubeadm.text(FLANNEL_AT) == FLANNEL


def test_a_chain_that_an_operator_has_placed_is_left_alone(host_of: HostOf) -> None:
    """It stays even under a name like ours: only the names that mooring-node uses are its own."""
    placed = wheelhouse.REPOSITORY / "manifests/cni/10-mooring.conflist"
    host = host_of({**KUBEADM, "/etc/cni/net.d/05-mooring.conflist": placed.read_text()})
    run_install(host)
    assert host.run("check")[0] == 0
    names = sorted(path.name for path in (host.root / "etc/cni/net.d").iterdir())
    assert names == ["05-mooring.conflist", "10-flannel.conflist"]


def test_a_single_plugin_becomes_a_list_and_a_chained_one_is_left(host_of: HostOf) -> None:
    """A .conf becomes a list of one; where mooring-cni is chained already the list is left as it is."""
    host = host_of(
        {**KUBEADM, FLANNEL_AT: "{}", "/etc/cni/net.d/00-a.conf": '{"cniVersion":"1.0.0","name":"a","type":"ptp"}'}
    )
    run_install(host)
    chained = json.loads(host.text("/etc/cni/net.d/00-0-mooring.conflist"))
    assert [plugin["type"] for plugin in chained["plugins"]] == ["ptp", "mooring-cni"]
    assert (chained["cniVersion"], chained["name"], chained["disableCheck"]) == ("1.0.0", "a", True)
    assert host.run("remove")[0] == 0
    host.write("/etc/cni/net.d/00-a.conf", '{"cniVersion":"1.0.0","name":"a","type":"mooring-cni"}')
    run_install(host, "second")
    assert not (host.root / "etc/cni/net.d/00-0-mooring.conflist").exists()


def test_links_of_the_host_lead_on_the_host(host_of: HostOf, tmp_path: Path) -> None:
    """With its root folder mounted elsewhere, a link to /usr/lib/cni is not the running machine's /usr/lib/cni."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    host = host_of(KUBEADM)
    links = {
        "opt/cni": "/usr/lib/cni",
        "usr/lib/cni": "../../usr/libexec/../libexec",
        "usr/libexec/bin": str(elsewhere),
    }
    for link, target in links.items():
        (host.root / link).parent.mkdir(parents=True, exist_ok=True)
        (host.root / link).symlink_to(target)
    there = host.root / str(elsewhere).lstrip("/")
    there.mkdir(parents=True)
    before = host.tree()
    run_install(host)
    assert (there / "mooring-cni").is_file()
    flags = host.root / "var/lib/kubelet/kubeadm-flags.env"
    (host.root / "etc/flags").write_text(flags.read_text())
    flags.unlink()
    flags.symlink_to("/etc/flags")
    assert host.run("remove")[0] == 0
    assert host.text("/etc/flags") == FLAGS
    assert not list(elsewhere.iterdir())
    (host.root / "etc/flags").rename(flags)
    assert host.tree() == before


def test_links_in_a_circle_are_refused(host_of: HostOf) -> None:
    """A circle of links is refused, as by the kernel."""
    host = host_of(KUBEADM)
    (host.root / "opt/cni").symlink_to("/opt/cni/again")
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 1
    assert "Too many levels of symbolic links" in said


@pytest.mark.parametrize("name", ["A_b", "a/b", "ä", "a" * 254])
def test_what_no_node_can_be_called_is_wrong_usage(kubeadm: NodeHost, name: str) -> None:
    """The programs would refuse it when they start, after all was installed."""
    status, said = kubeadm.run("install", "--node-name", name)
    assert status == 2
    assert "is not a node name" in said


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({FLANNEL_AT: "{"}, "cannot be read"),
        ({"/var/lib/kubelet/kubeadm-flags.env": "", CONFIG: "[]\n"}, "is not a mapping"),
        ({"/var/lib/kubelet/kubeadm-flags.env": "", CONFIG: "a: ["}, "cannot be read"),
        ({"/etc/systemd/system/kubelet.service": "[Service]\n"}, "has no ExecStart="),
        ({"/etc/mooring/config.yaml": "node_name: n2\n"}, "'n2'"),
        ({"/opt/cni/bin": "a file"}, "opt/cni/bin"),
        ({"/opt/mooring/pyvenv.cfg/file": "in a folder"}, "pyvenv.cfg"),
    ],
)
def test_a_run_that_fails_takes_everything_back(host_of: HostOf, files: dict[str, str], why: str) -> None:
    """The steps before the one that fails are undone, and the reason is printed."""
    host = host_of({**KUBEADM, **files})
    before = host.tree()
    status, said = host.run("install", "--wheelhouse", str(host.wheelhouse("first")))
    assert status == 1
    assert why in said
    assert host.tree() == before


@pytest.mark.systemd
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    """Every setting of the units is one that systemd knows; only their programs are not on this machine."""
    units = Path("cli/node/units").resolve()
    for unit in units.iterdir():
        lines = unit.read_text().splitlines()
        changed = [re.sub(r"^(ExecStart|ExecReload)=.*", r"\1=/bin/true", line) for line in lines]
        (tmp_path / unit.name).write_text("\n".join(changed))
    command = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "mooring-" in line] == []
