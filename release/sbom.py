"""The release's SBOM in CycloneDX 1.6: Mooring, every wheel with its hash and licence, and what needs what."""

import hashlib
import io
import json
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.locked import EXTRAS
from release.runtime.debian import Package
from release.source import Source

_LONGEST_LICENCE = 64


@dataclass(frozen=True, slots=True)
class _Wheel:
    content: bytes
    metadata: Message

    @property
    def name(self) -> str:
        return canonicalize_name(str(self.metadata["Name"]))

    def needs(self, extras: Iterable[str]) -> set[str]:
        """Return the names that its requirements have here, for some of its extras."""
        wanted = map(Requirement, self.metadata.get_all("Requires-Dist", []))
        environments = [{"extra": extra} for extra in ("", *extras)]
        return {
            canonicalize_name(one.name)
            for one in wanted
            if one.marker is None or any(map(one.marker.evaluate, environments))
        }


def describe(source: Source, ours: Path, others: Iterable[Path]) -> bytes:
    """Return the SBOM of our wheel and those that it needs; equal wheels of one commit give equal bytes."""
    own, *needed = [_read(path.read_bytes()) for path in (ours, *others)]
    return _document(source, "", own, needed, ())


def describe_runtime(
    source: Source, name: str, packages: Iterable[Package], wheels: Iterable[tuple[str, bytes]]
) -> bytes:
    """Return the SBOM of a runtime or an image: Debian packages, our wheel and those that it needs.

    ``name`` tells it from the others of a release.
    """
    own, *needed = [_read(content) for _, content in wheels]
    return _document(source, name, own, needed, packages)


def _document(source: Source, name: str, own: _Wheel, needed: Sequence[_Wheel], packages: Iterable[Package]) -> bytes:
    root = _component(own, ComponentType.APPLICATION)
    components = {one.name: _component(one, ComponentType.LIBRARY) for one in needed}
    debian = [_package(one) for one in packages]
    bom = Bom(
        components=[*components.values(), *debian],
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(source.epoch, UTC)),
        # A random one would make each build another.
        serial_number=uuid.uuid5(
            uuid.NAMESPACE_URL, f"mooring.dev/release/{source.version}/{source.commit}{f'/{name}' if name else ''}"
        ),
    )
    wanted = [components[name] for name in sorted(own.needs(EXTRAS) & components.keys())]
    bom.register_dependency(root, [*wanted, *debian])
    for one in needed:
        found = sorted(one.needs(()) & components.keys())
        bom.register_dependency(components[one.name], [components[name] for name in found])
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _read(content: bytes) -> _Wheel:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA") and one.count("/") == 1)
        return _Wheel(content, HeaderParser().parsestr(archive.read(name).decode()))


def _package(package: Package) -> Component:
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}",
        purl=PackageURL("deb", "debian", package.name, package.version, {"arch": package.arch, "distro": "bookworm"}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
        licenses=[LicenseFactory().make_from_string(package.licence)],
    )


def _component(wheel: _Wheel, kind: ComponentType) -> Component:
    version, content = str(wheel.metadata["Version"]), wheel.content
    licence = wheel.metadata["License-Expression"] or wheel.metadata["License"]
    known = licence and len(licence) <= _LONGEST_LICENCE and "\n" not in licence
    return Component(
        name=wheel.name,
        version=version,
        type=kind,
        bom_ref=f"{wheel.name}@{version}",
        purl=PackageURL("pypi", name=wheel.name, version=version),
        description=wheel.metadata["Summary"],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())],
        licenses=[LicenseFactory().make_from_string(licence)] if known else [],
    )
