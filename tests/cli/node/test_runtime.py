"""`mooring-node install --bundle`: a release's runtime is installed, all else is refused and changes nothing."""

import hashlib
import subprocess
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.node.errors import NodeError
from cli.node.mounts import refuse_label
from cli.node.plan.states import RuntimeCopy
from cli.node.plan.steps import COMPLETE
from cli.node.runtime import copy, machine
from tests.cli.node.conftest import NodeHost
from tests.cli.node.runtimes import FILES, archive, document, whole

_TOP = next(iter(whole())).partition("/")[0]


def test_a_runtime_is_installed_upgraded_and_removed(kubeadm: NodeHost, tmp_path: Path) -> None:
    """The units' programs and the CNI plugin are those of the current release; the release before stays."""
    before = kubeadm.tree()
    bundles = [archive(tmp_path / f"{n}.tar.gz", whole({**FILES, "n": str(n).encode()})) for n in range(3)]
    names = [next(iter(whole({**FILES, "n": str(n).encode()}))).partition("/")[0] for n in range(3)]
    digest = hashlib.sha256(bundles[0].read_bytes()).hexdigest()
    for number, command in enumerate(("install", "upgrade", "upgrade")):
        flags = ("--bundle-sha256", digest) if number == 0 else ()
        status, said = kubeadm.run(command, "--bundle", str(bundles[number]), *flags)
        assert status == 0, said
        assert kubeadm.run(command, "--bundle", str(bundles[number]))[1].splitlines()[-1].endswith("nothing to do")
    releases = kubeadm.root / "opt/mooring/versions"
    assert (kubeadm.root / "opt/mooring/current").resolve().name == names[2].removeprefix("mooring-")
    assert {path.name for path in releases.glob("0*")} == {name.removeprefix("mooring-") for name in names[1:]}
    program = kubeadm.root / "opt/mooring/bin/mooring-cni"
    assert (program.read_bytes(), program.stat().st_mode & 0o777) == (b"program", 0o755)
    forwarder = kubeadm.text("/opt/cni/bin/mooring-cni")
    assert forwarder.startswith(
        f"#!/bin/sh\n''':'\nexec /opt/mooring/versions/{names[2].removeprefix('mooring-')}/lib/ld-"
    )
    assert kubeadm.run("remove")[0] == 0
    assert not any(releases.glob("0*"))
    assert kubeadm.tree() == before


def test_a_copy_that_was_killed_is_not_a_release(kubeadm: NodeHost, tmp_path: Path) -> None:
    """A folder without its last file is copied again."""
    bundle = archive(tmp_path / "bundle.tar.gz", whole())
    release = kubeadm.root / "opt/mooring/versions" / _TOP.removeprefix("mooring-")
    (release / "bin").mkdir(parents=True)
    (release / "bin/mooring-cni").write_text("half")
    assert kubeadm.run("install", "--bundle", str(bundle))[0] == 0
    assert (release / "bin/mooring-cni").read_bytes() == b"program"


BROKEN = {
    "one byte changed": (whole() | {f"{_TOP}/lib/libc.so.6": b"l1brary"}, "lib/libc.so.6' has the SHA-256 '"),
    "a file that is missing": (
        {name: content for name, content in whole().items() if "libc" not in name},
        "lib/libc.so.6' cannot be read: ",
    ),
    "no hashes": ({f"{_TOP}/bin/a": b""}, "RELEASE.json cannot be read: FileNotFoundError"),
    "a later form": (whole(v=2), "RELEASE.json cannot be read: ValueError('version 2 is not 1')"),
    "a path out of the folder": ({f"{_TOP}/../a": b""}, f"member '{_TOP}/../a' is not a file below one folder"),
    "an absolute path": ({"/etc/passwd": b""}, "member '/etc/passwd' is not a file below one folder"),
    "a hash of a path out of the folder": (
        {**whole(), f"{_TOP}/RELEASE.json": document({"../a": b""})},
        "'../a' is not the path of a file in the runtime",
    ),
    "a hash of a name with NUL": (
        {**whole(), f"{_TOP}/RELEASE.json": document({"a\0b": b""})},
        "a\\\\x00b' is not the path of a file in the runtime",
    ),
    "a hash of a name with a lone surrogate": (
        {**whole(), f"{_TOP}/RELEASE.json": document({"\ud800": b""})},
        "\\\\ud800' is not the path of a file in the runtime",
    ),
    "hashes nested too deeply": (
        {**whole(), f"{_TOP}/RELEASE.json": b"[" * 200_000},
        "RELEASE.json cannot be read: ValueError('nested too deeply')",
    ),
    "two folders": ({**whole(), "other/a": b""}, "it has 2 folders at its top instead of one"),
    "another version": (whole(version="9.9.9"), f"is mooring '9.9.9', but this is {version('mooring')}"),
    "another machine": (whole(arch="m68k"), f"is for 'm68k', but this machine is {machine()}"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_an_archive_that_is_not_as_it_was_made_changes_nothing(why: str, kubeadm: NodeHost, tmp_path: Path) -> None:
    """The message names the file, the value and the rule; the host is as before."""
    files, said = BROKEN[why]
    bundle, before = archive(tmp_path / "bundle.tar.gz", files), kubeadm.tree()
    status, output = kubeadm.run("install", "--bundle", str(bundle))
    assert (status, said in output) == (1, True), output
    assert kubeadm.tree() == before
    assert not any((kubeadm.root / "opt/mooring/versions").glob("0*"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file is in the way; a full or read-only file system is reported in the same words."""
    for name, content in whole().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "versions").write_text("a file")
    change = RuntimeCopy("/versions/0", str(tmp_path / _TOP))
    with pytest.raises(NodeError, match=r"^runtime: folder '.*/versions/0' cannot be written: .*Errno"):
        copy(tmp_path, change)


def test_a_runtime_is_copied_without_programs_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync` of busybox cannot write back one file system."""
    for name, content in whole().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("PATH", str(tmp_path))
    copy(tmp_path, RuntimeCopy("/versions/0", str(tmp_path / _TOP)))
    assert (tmp_path / "versions/0" / COMPLETE).exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_not_a_plain_file_is_refused(kind: bytes, kubeadm: NodeHost, tmp_path: Path) -> None:
    """Links could lead anywhere, also to a file whose hash is right."""
    link = tarfile.TarInfo(f"{_TOP}/bin/link")
    link.type, link.linkname = kind, "mooring-cni"
    status, said = kubeadm.run("install", "--bundle", str(archive(tmp_path / "bundle.tar.gz", whole(), [link])))
    assert (status, f"member '{_TOP}/bin/link' is not a plain file" in said) == (1, True)


@pytest.mark.parametrize("content", [b"", b"not a tar" * 200])
def test_what_is_no_archive_is_refused_in_words(content: bytes, kubeadm: NodeHost, tmp_path: Path) -> None:
    """So is a file that is not there, and one that ends early, as a transfer that broke off leaves it."""
    bundle, early = tmp_path / "bundle.tar.gz", archive(tmp_path / "early.tar.gz", whole())
    bundle.write_bytes(content)
    early.write_bytes(early.read_bytes()[:200])
    for path in (bundle, early, tmp_path / "nowhere"):
        status, said = kubeadm.run("install", "--bundle", str(path))
        assert (status, said.startswith(f"mooring-node: bundle {str(path)!r} cannot be read: ")) == (1, True), said


def test_the_archives_own_hash_is_compared_where_somebody_knows_it(kubeadm: NodeHost, tmp_path: Path) -> None:
    """Whoever can change the archive can change the hashes in it, but not those of the release's SHA256SUMS."""
    bundle = archive(tmp_path / "bundle.tar.gz", whole())
    found = hashlib.sha256(bundle.read_bytes()).hexdigest()
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--bundle-sha256", "0" * 64)
    assert (status, f"its SHA-256 is {found!r}, not {'0' * 64!r}" in said) == (1, True)
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--bundle-sha256", "abc")
    assert (status, "option bundle_sha256: 'abc' is not a SHA-256" in said) == (1, True)


def test_bundle_and_wheelhouse_are_not_given_both(kubeadm: NodeHost, tmp_path: Path) -> None:
    """One of them would be ignored without a word."""
    bundle = archive(tmp_path / "bundle.tar.gz", whole())
    status, said = kubeadm.run("install", "--bundle", str(bundle), "--wheelhouse", str(tmp_path))
    assert (status, "exclude each other" in said) == (1, True)


def test_the_folder_of_programs_can_be_chosen(kubeadm: NodeHost, tmp_path: Path) -> None:
    """The configuration keeps it, so that later commands need no flag; removal leaves nothing there."""
    before, bundle = kubeadm.tree(), str(archive(tmp_path / "bundle.tar.gz", whole()))
    status, said = kubeadm.run("install", "--bundle", bundle, "--folder", "/var/mooring")
    assert status == 0, said
    assert "ExecStart=/var/mooring/bin/mooring-cni serve" in kubeadm.text("/etc/systemd/system/mooring-cni.service")
    release = f"/var/mooring/versions/{_TOP.removeprefix('mooring-')}"
    assert f"exec {release}/" in kubeadm.text("/opt/cni/bin/mooring-cni")
    assert kubeadm.run("upgrade", "--bundle", bundle)[1].splitlines()[-1] == "upgrade      nothing to do"
    assert kubeadm.run("remove")[0] == 0
    assert kubeadm.tree() == before


def test_a_flag_that_contradicts_the_nodes_configuration_changes_nothing(kubeadm: NodeHost, tmp_path: Path) -> None:
    """An operator's setting is not overwritten; `check` with that flag finds it before an upgrade meets it."""
    bundles = [str(archive(tmp_path / f"{n}.tar.gz", whole({**FILES, "n": str(n).encode()}))) for n in range(2)]
    assert kubeadm.run("install", "--bundle", bundles[0])[0] == 0
    before, releases = kubeadm.tree(), sorted((kubeadm.root / "opt/mooring/versions").iterdir())
    config = "'/etc/mooring/config.yaml'"
    for flags, why in (
        (
            ["--network", "none"],
            f"mooring-node.network (flag --network) in {config} is 'chain', but 'none' is requested",
        ),
        (["--failed-shim", "wait"], f"section 'mooring-node' in {config} has no failed_shim: add `failed_shim: wait`"),
    ):
        assert why in kubeadm.run("check", *flags)[1]
        status, said = kubeadm.run("upgrade", "--bundle", bundles[1], *flags)
        assert (status, why in said, "rollback" in said) == (1, True, False), said
        assert kubeadm.tree() == before
        assert sorted((kubeadm.root / "opt/mooring/versions").iterdir()) == releases


@pytest.mark.root
@pytest.mark.parametrize(("option", "why"), [("noexec", "noexec"), ("ro", "read-only")])
def test_folders_where_programs_cannot_run_are_refused(
    option: str, why: str, kubeadm: NodeHost, tmp_path: Path
) -> None:
    """Before anything is changed; the message names the folder and the flag for another one."""
    before, bundle = kubeadm.tree(), str(archive(tmp_path / "bundle.tar.gz", whole()))
    opt = kubeadm.root / "opt"
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(opt)], check=True)
    try:
        status, said = kubeadm.run("install", "--bundle", bundle)
    finally:
        subprocess.run(["umount", str(opt)], check=True)
    wanted = f"folder '/opt/mooring' is on a file system that is mounted {why}: choose another one with --folder"
    assert (status, wanted in said) == (1, True), said
    assert kubeadm.tree() == before


@pytest.mark.root
def test_a_file_of_others_that_cannot_be_written_is_refused_too(kubeadm: NodeHost, tmp_path: Path) -> None:
    """The kubelet's, in a folder that is mounted read-only: nothing is changed before that is found."""
    before, bundle = kubeadm.tree(), str(archive(tmp_path / "bundle.tar.gz", whole()))
    folder = str(kubeadm.root / "var/lib/kubelet")
    for options in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
        subprocess.run(["mount", *options], check=True)
    try:
        status, said = kubeadm.run("install", "--bundle", bundle)
    finally:
        subprocess.run(["umount", folder], check=True)
    wanted = "mooring-node: folder '/var/lib/kubelet' is on a file system that is mounted read-only\n"
    assert (status, said.endswith(wanted), "rollback" in said) == (1, True, False), said
    assert kubeadm.tree() == before


# The policy of RHEL CoreOS: https://github.com/openshift/os/issues/1624, https://github.com/openshift/os/pull/551
_MATCHPATHCON = """\
#!/bin/sh
case $2 in
  */opt/mooring/*/bin/*) echo system_u:object_r:var_t:s0 ;;
  */usrlocal/mooring/*/bin/*) echo system_u:object_r:bin_t:s0 ;;
esac
"""


def test_a_folder_whose_programs_selinux_would_not_let_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the folder to which links lead; the message has the type, and both ways out."""
    (program := tmp_path / "programs/matchpathcon").parent.mkdir()
    program.write_text(_MATCHPATHCON)
    program.chmod(0o755)
    for name in ("opt", "usrlocal"):
        (tmp_path / "var" / name).mkdir(parents=True)
        (tmp_path / name).symlink_to(f"var/{name}")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    refuse_label(f"{tmp_path}/usrlocal/mooring")
    with pytest.raises(NodeError, match=r"as 'var_t', and systemd starts only 'bin_t'.* '.*/var/opt/mooring"):
        refuse_label(f"{tmp_path}/opt/mooring")
    program.unlink()
    refuse_label(f"{tmp_path}/opt/mooring")


def test_programs_get_labels_where_selinux_enforces(kubeadm: NodeHost, tmp_path: Path) -> None:
    """Before a unit starts them; elsewhere nothing is run."""
    bundle = str(archive(tmp_path / "bundle.tar.gz", whole()))
    for enforce, count in (("0", 0), ("1", 2)):
        kubeadm.write("/sys/fs/selinux/enforce", enforce)
        _, said = kubeadm.run("install", "--bundle", bundle, "--dry-run")
        lines = said.splitlines()
        labels = [number for number, line in enumerate(lines) if "would run restorecon -R /opt/" in line]
        assert len(labels) == count
        assert all(number < lines.index("services     would run systemctl daemon-reload") for number in labels[:1])
