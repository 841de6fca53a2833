"""Images of tarballs, pulled by the registry's protocol."""

import hashlib
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer

from devcluster.images import registry
from devcluster.runtime.images import write_folder_image
from release import oci
from release.members import Member


async def test_an_image_that_was_added_can_be_pulled(tmp_path: Path) -> None:
    """A tag leads to a manifest, a digest to its parts; each has the digest of its name."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("content")
    name = "registry.example/team/tool:1.0"
    tarball = write_folder_image(tmp_path / "image.tar", name, tmp_path / "root", {"Entrypoint": ["/file"]})
    assert registry.add(tmp_path / "images", tarball) == [name]
    async with TestClient(TestServer(registry.application(tmp_path / "images"))) as client:
        assert (await client.get("/v2/")).status == 200
        found = await client.get("/v2/team/tool/manifests/1.0")
        assert found.headers["Docker-Content-Digest"] == f"sha256:{hashlib.sha256(await found.read()).hexdigest()}"
        manifest = await found.json(content_type=None)
        for part in (manifest["config"], *manifest["layers"]):
            blob = await (await client.get(f"/v2/team/tool/blobs/{part['digest']}")).read()
            assert f"sha256:{hashlib.sha256(blob).hexdigest()}" == part["digest"]


async def test_an_image_of_several_architectures_is_pulled_by_its_index(tmp_path: Path) -> None:
    """An archive of a release names no registry: its image has the names of all."""
    layer = oci.layer({"file": Member(b"content")}, 0)
    images = [oci.PlatformImage(arch, (layer,), {}) for arch in ("amd64", "arm64")]
    archive = oci.write(tmp_path / "tool.oci.tar", "tool:1.0", images, "1970-01-01T00:00:00Z")
    assert registry.add(tmp_path / "images", archive) == ["docker.io/library/tool:1.0"]
    assert registry.add(tmp_path / "images", archive, "next") == ["docker.io/library/tool:next"]
    async with TestClient(TestServer(registry.application(tmp_path / "images"))) as client:
        for repository in ("tool", "library/tool"):
            found = await client.get(f"/v2/{repository}/manifests/1.0")
            assert found.headers["Content-Type"] == oci.INDEX
            for platform in (await found.json(content_type=None))["manifests"]:
                manifest = await client.get(f"/v2/{repository}/manifests/{platform['digest']}")
                assert manifest.headers["Content-Type"] == platform["mediaType"]


async def test_what_was_never_pushed_is_not_found(tmp_path: Path) -> None:
    """Unknown tags and digests are not found."""
    async with TestClient(TestServer(registry.application(tmp_path))) as client:
        for path in ("manifests/latest", "manifests/sha256:0", "blobs/sha256:0"):
            assert (await client.get(f"/v2/team/tool/{path}")).status == 404
