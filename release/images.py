"""The images: scheduler, advertiser and node installer, from the parts of the node runtime, without a base image.

An image has no shell and no other program. Its C library lies where the interpreter looks for it, so a program is a
script that the kernel starts by the interpreter. What all images of an architecture have in common is one layer.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from cli.node.runtime import SBOM
from release import oci, sbom
from release.cache import PACKAGES
from release.members import Member
from release.runtime import NODE_EXTRAS, build, debian
from release.runtime.archive import node_runtime
from release.runtime.tree import parts
from release.source import Source

Tree = Mapping[str, Member]
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nmooring:x:65532:65532:mooring:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nmooring:x:65532:\n",
    # As Debian's libc-bin has it: without the file glibc asks DNS before /etc/hosts.
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"SSL_CERT_FILE=/{_CERTIFICATES}")
# Where the interpreter names its loader (PT_INTERP), and where that looks for libraries: Debian's multiarch folder.
_LOADERS = {"amd64": "lib64/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}
_LIBRARIES = {"amd64": "lib/x86_64-linux-gnu", "arm64": "lib/aarch64-linux-gnu"}


_SCRIPT = """\
#!/mooring/python/bin/python3.11 -I
import sys

from {module} import {function}

sys.exit({function}())
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, its program, as which user that runs, which wheels it needs."""

    name: str
    program: str
    title: str
    user: str
    extras: tuple[str, ...]


# Users by number, so that a kubelet can see which is not root. The advertiser's pods run as 65532 where that is enough:
# the node's records and its NICs' settings are root's.
IMAGES = (
    Image("mooring-scheduler", "mooring-scheduler", "Mooring's scheduler", "65532:65532", ("scheduler",)),
    Image("mooring-advertiser", "mooring-advertiser", "Mooring's advertiser", "0:0", ("advertiser",)),
    # What it installs on a node is the runtime, which lies below /mooring.
    Image("mooring-node-installer", "mooring-node", "Installs Mooring on a node", "0:0", NODE_EXTRAS),
)


def write(source: Source, architectures: Sequence[str], cache: Path, out: Path) -> Iterator[Path]:
    """Write each image's archive to ``out`` and yield it; ``cache`` is as `release.runtime.build` has it."""
    layers = {arch: list(_layers(_roots(source, arch, cache), source.epoch)) for arch in architectures}
    created = datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number, image in enumerate(IMAGES):
        process = _process(source, image)
        platforms = [oci.PlatformImage(arch, layers[arch][number], process) for arch in architectures]
        path = out / f"{image.name}-{source.version}.oci.tar"
        yield oci.write(path, f"{image.name}:{source.version}", platforms, created)


def _roots(source: Source, arch: str, cache: Path) -> list[Tree]:
    """Return the root folder of each image."""
    scripts = tomllib.loads((source.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    certificates = Member(_certificates(source, cache))
    found: list[Tree] = []
    for image in IMAGES:
        is_node = image.extras == NODE_EXTRAS
        parts = node_runtime(source, arch, cache) if is_node else build(source, arch, cache, image.extras, ())
        module, _, function = str(scripts[image.program]).partition(":")
        script = _SCRIPT.format(module=module, function=function)
        own = {f"usr/bin/{image.program}": Member(script.encode(), 0o755), _CERTIFICATES: certificates}
        own[SBOM] = Member(_sbom(source, arch, image, cache))
        found.append({**{f"mooring/{path}": member for path, member in parts.items()}, **_around(arch), **own})
    return found


def _sbom(source: Source, arch: str, image: Image, cache: Path) -> bytes:
    packages, wheels = parts(source, arch, cache, image.extras)
    return sbom.describe_runtime(source, f"{arch}/{image.name}", [*packages, *_certificate_packages(source)], wheels)


def _certificate_packages(source: Source) -> list[debian.Package]:
    lock = debian.read_lock((source.folder / debian.LOCK).read_text(encoding="utf-8"))
    return [one for one in lock if one.name == "ca-certificates"]


def _certificates(source: Source, cache: Path) -> bytes:
    """Return the certificates of Debian's package in one file, as its `update-ca-certificates` joins them."""
    members = debian.files(_certificate_packages(source), cache / PACKAGES)
    # Elsewhere in the package lies an example that is none.
    texts = [
        member.content for path, member in sorted(members.items()) if path.startswith("usr/share/ca-certificates/")
    ]
    return b"".join(text.rstrip(b"\n") + b"\n" for text in texts)


def _around(arch: str) -> Tree:
    """Return what lies around a program: accounts, links to the C library, the folder for temporary files."""
    return {
        **{path: Member(text.encode()) for path, text in _ACCOUNTS.items()},
        _LOADERS[arch]: Member(link=f"/mooring/lib/{PurePosixPath(_LOADERS[arch]).name}"),
        _LIBRARIES[arch]: Member(link="/mooring/lib"),
        "tmp/": Member(mode=0o1777),
    }


def _layers(roots: Sequence[Tree], epoch: int) -> Iterator[tuple[oci.Layer, ...]]:
    """Yield each image's layers: what all have in common, then its own."""
    first, *others = roots
    common = {path: member for path, member in first.items() if all(root.get(path) == member for root in others)}
    below = oci.layer(common, epoch)
    for root in roots:
        yield below, oci.layer({path: member for path, member in root.items() if path not in common}, epoch)


def _process(source: Source, image: Image) -> Mapping[str, object]:
    """Return the process of an image's configuration (image-spec 1.0, config.md)."""
    labels = {
        "title": image.title,
        "version": source.version,
        "revision": source.commit,
        "licenses": "Apache-2.0",
    }
    return {
        "User": image.user,
        "Env": list(_ENVIRONMENT),
        "Entrypoint": [image.program],
        "WorkingDir": "/",
        "Labels": {f"org.opencontainers.image.{name}": value for name, value in labels.items()},
    }
