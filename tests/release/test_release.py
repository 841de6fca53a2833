"""A release: two builds of a commit have equal bytes, its parts belong together, and a node is installed from it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import datetime
from importlib import resources
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from cli.node.runtime import RELEASE, machine
from release.cache import helm
from release.locked import REPOSITORY, of_programs
from release.runtime import NODE_PROGRAMS
from release.source import export
from tests.cli.node.conftest import KUBEADM, NodeHost
from tests.docs.pages import commands
from tests.manifests.charts import plain
from tests.release.conftest import Releases, make

# The release is built once, within the first test: half a minute of CPU.
pytestmark = [pytest.mark.wheels, pytest.mark.timeout(600)]


def _digests(folder: Path) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _runtime(release: Path) -> Path:
    (found,) = release.glob(f"mooring-node-*-linux-{machine()}.tar.gz")
    return found


def test_two_releases_of_a_commit_have_equal_bytes(releases: Releases) -> None:
    """Every file, whatever the time zone, the language, the mask of modes and the folder were."""
    first, second = _digests(releases.first), _digests(releases.second)
    assert len(second) > 45
    del second["SHA256SUMS"]
    assert {name: digest for name, digest in first.items() if name in second} == second


def test_every_time_in_it_is_the_commits(releases: Releases) -> None:
    """Of the wheel, of the runtimes, of the chart and of the SBOM."""
    epoch = int(_git("show", "--no-patch", "--format=%ct", "HEAD"))
    for path in (*releases.first.glob("mooring-node-*.tar.gz"), *releases.first.glob("*.tgz")):
        with tarfile.open(path) as archive:
            assert {(one.mtime, one.uid, one.gid) for one in archive} == {(epoch, 0, 0)}
    sbom = json.loads((releases.first / "sbom.cdx.json").read_text())
    assert datetime.fromisoformat(sbom["metadata"]["timestamp"]).timestamp() == epoch


def _git(*arguments: str) -> str:
    command = ["git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_checksums_are_those_of_every_file(releases: Releases) -> None:
    """`sha256sum --check` finds each of them right; no file is without."""
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=releases.first, check=True)
    listed = {line.split("  ", 1)[1] for line in (releases.first / "SHA256SUMS").read_text().splitlines()}
    assert listed == _digests(releases.first).keys() - {"SHA256SUMS"}


def test_the_air_gap_archive_has_images_runtimes_chart_and_manifests(releases: Releases, tmp_path: Path) -> None:
    """Each with its checksum; `kubectl apply -k` reads the manifests there."""
    (path,) = releases.first.glob("mooring-*-airgap.tar")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert path.name == f"{folder.name}-airgap.tar"
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    names = {file.name for file in folder.iterdir()}
    release = {file.name for file in releases.first.iterdir()}
    assert {name for name in release if name.endswith((".oci.tar", ".tgz", ".tar.gz"))} == names & release - {
        "SHA256SUMS"
    }
    assert (folder / "manifests/base/kustomization.yaml").exists()
    assert (folder / "manifests/helm/mooring/Chart.yaml").exists()


def test_the_wheels_are_those_of_the_lock_and_our_own(releases: Releases) -> None:
    """Each of the lock's has one of its hashes; ours has the commit's files, though the work tree may have others."""
    allowed = {digest for one in of_programs() for digest in one.sha256}
    found = _digests(releases.first / "wheels")
    (ours,) = (name for name in found if name.startswith("mooring-"))
    assert len(found) == len(of_programs()) + 1
    assert {digest for name, digest in found.items() if name != ours} <= allowed
    with zipfile.ZipFile(releases.first / "wheels" / ours) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("cni/")]
    assert sorted(names) == _git("ls-tree", "-r", "--name-only", "HEAD", "cni/").splitlines()


def test_a_runtime_lists_its_files_and_what_it_is_made_of(releases: Releases) -> None:
    """Every file with its hash in RELEASE.json; Debian packages and wheels with theirs in the SBOM."""
    for path in releases.first.glob("mooring-node-*.tar.gz"):
        with tarfile.open(path) as archive:
            tops = {name.partition("/")[0] for name in archive.getnames()}
            files = {one.name.partition("/")[2]: _content(archive, one) for one in archive}
        text = files.pop(RELEASE)
        assert tops == {f"mooring-{version('mooring')}-{hashlib.sha256(text).hexdigest()[:12]}"}
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        document = json.loads(text)
        assert document["files"] == digests
        sbom = json.loads(files["sbom.cdx.json"])
        kinds = {one["purl"].partition("/")[0] for one in sbom["components"]}
        assert kinds == {"pkg:deb", "pkg:pypi"}
        (libc,) = (one for one in sbom["components"] if one["name"] == "libc6")
        assert (libc["hashes"][0]["alg"], document["arch"] in libc["purl"]) == ("SHA-256", True)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(member)
    assert content is not None, member.name
    return content.read()


@pytest.mark.helm
def test_helm_reads_the_chart_of_a_release(releases: Releases) -> None:
    """The archive renders to what the folder renders to."""
    (archive,) = releases.first.glob("mooring-*.tgz")
    command = [str(helm(os.environ)), "template", "mooring", str(archive), "--set", "createNamespace=true"]
    flags = ["--namespace", "mooring-system", "--kube-version", "1.36.0"]
    shown = subprocess.run([*command, *flags], capture_output=True, text=True, check=True).stdout
    found = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(shown) if one}
    assert found == plain()


def test_the_sbom_is_valid_and_names_every_wheel(releases: Releases) -> None:
    """By CycloneDX' own schema; each with its hash, and what it needs."""
    document = json.loads((releases.first / "sbom.cdx.json").read_text())
    folder = resources.files("cyclonedx.schema").joinpath("_res")
    schemas = {name: json.loads(folder.joinpath(f"{name}.SNAPSHOT.schema.json").read_text()) for name in _SCHEMAS}
    # They refer to each other by their files' names, which their own identifiers do not have.
    by_file = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource.from_contents(one))
        for name, one in schemas.items()
    ]
    registry = Registry[object]().with_resources(by_file)
    assert [str(wrong) for wrong in Draft7Validator(schemas["bom-1.6"], registry=registry).iter_errors(document)] == []
    told = {one["hashes"][0]["content"] for one in [*document["components"], document["metadata"]["component"]]}
    assert told == set(_digests(releases.first / "wheels").values())
    needs = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    (kubernetes,) = (ref for ref in needs if ref.startswith("kubernetes@"))
    (own,) = (ref for ref in needs if ref.startswith("mooring@"))
    assert kubernetes in needs[own]
    assert any(ref.startswith("urllib3@") for ref in needs[kubernetes])
    assert all(one.get("licenses") for one in document["components"] if one["name"] in ("aiohttp", "kubernetes"))


def test_the_plugin_of_krew_runs_from_its_archive(releases: Releases, tmp_path: Path) -> None:
    """The manifest has what krew requires, and the hash of the archive; the commands run through krew's link."""
    manifest = yaml.safe_load((releases.first / "mooring.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert manifest["metadata"] == {"name": "mooring"}
    (platform,) = manifest["spec"]["platforms"]
    assert platform.keys() == {"selector", "uri", "sha256", "bin"}
    assert platform["selector"]["matchLabels"]["os"] == "linux"
    archive = releases.first / platform["uri"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as read:
        assert not any(name.startswith("lib/numpy/") for name in read.getnames())
        read.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    for name, argv, said in (
        ("kubectl-mooring", ["version", "--client"], "Client Version: "),
        ("kubectl_complete-mooring", ["gro"], "groups\t"),
    ):
        link = tmp_path / "bin" / name
        link.symlink_to(tmp_path / "store" / name)
        # As krew calls it: by a link in a folder on the PATH.
        environment = {"PATH": f"{tmp_path / 'bin'}:{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"}
        done = subprocess.run([name, *argv], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(said)


_SCHEMAS = ("bom-1.6", "spdx", "jsf-0.82")


# Python of the host: every use of it is written down, and fails.
_OLD_PYTHON = """\
#!/bin/sh
echo "$0 $*" >>{calls}
[ "$*" != --version ] || echo Python 3.9.18
exit 1
"""


@pytest.mark.root
def test_a_node_whose_python_is_old_is_installed_by_the_pages_commands(releases: Releases, tmp_path: Path) -> None:
    """In a network namespace that has not even loopback; nothing starts the host's Python, by name or by path."""
    host = NodeHost(tmp_path / "host")
    for path, text in {"/var/lib/.keep": "", **KUBEADM}.items():
        host.write(path, text)
    unpack, install, *_ = commands("install-node.md", "From a release")
    archive = _runtime(releases.first)
    (tmp_path / next(word for word in unpack.split() if word.endswith(".tar.gz"))).symlink_to(archive)
    (programs := tmp_path / "programs").mkdir()
    for name in ("tar", "gzip", "sync", "readlink"):
        (programs / name).symlink_to(str(shutil.which(name)))
    old, calls = programs / "python3", tmp_path / "calls"
    old.write_text(_OLD_PYTHON.format(calls=calls))
    old.chmod(0o755)
    (programs / "python").symlink_to("python3")
    pythons = {str(path.resolve()) for path in (*Path("/usr/bin").glob("python3*"), Path(sys.executable))}
    hidden = [f"{shutil.which('mount')} --bind {old} {python}" for python in sorted(pythons)]
    new = f"{host.root}/opt/mooring/bin"
    versions = [f"{new}/{program} --version" for program in NODE_PROGRAMS]
    check = f"{new}/mooring-node check --root {host.root} --node-name n1"
    done = subprocess.run(
        [
            *(str(shutil.which("unshare")), "--net", "--mount", "/bin/sh", "-euc"),
            "\n".join([*hidden, unpack, f"{install} --root {host.root}", *versions, check]),
        ],
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home"), "PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("no findings: the installation is intact\n")
    assert not calls.exists(), calls.read_text()
    assert "#!/bin/sh" in host.text("/opt/cni/bin/mooring-cni")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--without-images", "--cache", "/nowhere"), "release/fetch wheels puts it there"),
        (("--without-images", "--commit", "no-such-commit"), "git rev-parse --verify no-such-commit"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(flags: tuple[str, ...], why: str, tmp_path: Path) -> None:
    """With exit status 1, and what to do."""
    done = make(tmp_path / "dist", *flags)
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """They would be among the release's checksums."""
    (tmp_path / "other").write_text("")
    done = make(tmp_path, "--without-images")
    assert (done.returncode, "not empty" in done.stderr) == (1, True)


def test_a_release_has_the_commit_and_not_what_else_lies_in_the_work_tree(tmp_path: Path) -> None:
    """A file that git does not know would be in the wheel otherwise."""
    repository = tmp_path / "repository"
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example", "-C", str(repository)]
    repository.mkdir()
    (repository / "pyproject.toml").write_text('[project]\nversion = "7"\n')
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "a"]):
        subprocess.run([*command, *arguments], check=True)
    (repository / "left-over").write_text("")
    source = export(repository, tmp_path / "source")
    assert source.version == "7"
    assert [path.name for path in source.folder.iterdir()] == ["pyproject.toml"]
