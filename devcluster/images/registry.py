"""``python -m devcluster.images.registry``: an image registry that the hosts pull from (OCI distribution-spec 1.0).

Images come in by `add`, out of the archives of a release. In the folder are blobs/sha256/<digest> and
tags/<repository>/<tag>, the text of which is the digest of a manifest, or of an index for several architectures.
"""

import argparse
import asyncio
import json
import signal
import sys
import tarfile
from pathlib import Path

from aiohttp import web

from devcluster.apiserver.http.netns import listen_in
from devcluster.runtime.images import full_name

# What containerd puts before a name without a registry.
_LIBRARY = "library/"


def add(folder: Path, tarball: Path, tag: str = "") -> list[str]:
    """Take in every image of a tarball; return their full names. ``tag`` replaces their own tags."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tarball) as archive:
        for member in archive.getmembers():
            if member.name.startswith("blobs/sha256/") and (content := archive.extractfile(member)) is not None:
                (blobs / Path(member.name).name).write_bytes(content.read())
        index = archive.extractfile("index.json")
        assert index is not None, "an OCI layout has an index"
        manifests = json.load(index)["manifests"]
    return [_tag(folder, manifest, tag) for manifest in manifests]


def _tag(folder: Path, manifest: dict[str, dict[str, str]], tag: str) -> str:
    name = full_name(manifest["annotations"]["io.containerd.image.name"])
    name = f"{name.rpartition(':')[0]}:{tag}" if tag else name
    path = _tag_path(folder, *_split(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(manifest["digest"]))
    return name


def _split(name: str) -> tuple[str, str]:
    """Return repository and tag; the registry's own name is not part of a path: this one stands for all of them."""
    repository, _, tag = name.partition("/")[2].rpartition(":")
    return repository.removeprefix(_LIBRARY), tag


def _tag_path(folder: Path, repository: str, tag: str) -> Path:
    return folder / "tags" / repository / tag


def application(folder: Path) -> web.Application:
    """Return what answers pulls."""

    async def manifest(request: web.Request) -> web.StreamResponse:
        reference = request.match_info["reference"]
        tagged = _tag_path(folder, request.match_info["repository"].removeprefix(_LIBRARY), reference)
        digest = tagged.read_text() if tagged.is_file() else reference
        path = folder / "blobs" / digest.replace(":", "/")
        if not path.is_file():
            raise web.HTTPNotFound
        content = path.read_bytes()
        headers = {"Docker-Content-Digest": digest, "Content-Type": json.loads(content)["mediaType"]}
        return web.Response(body=content, headers=headers)

    async def blob(request: web.Request) -> web.StreamResponse:
        path = folder / "blobs" / request.match_info["digest"].replace(":", "/")
        if not path.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    async def version(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="{}")

    answering = web.Application()
    answering.router.add_get("/v2/", version)
    answering.router.add_get("/v2/{repository:.+}/manifests/{reference}", manifest)
    answering.router.add_get("/v2/{repository:.+}/blobs/{digest}", blob)
    return answering


async def _serve(folder: Path, address: tuple[str, int], namespaces: list[str]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(application(folder), access_log=None)
    await runner.setup()
    for name in namespaces:
        await web.SockSite(runner, listen_in(name, *address)).start()
    await stop.wait()
    await runner.cleanup()


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.images.registry", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="blobs and tags")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="address inside the namespaces")
    parser.add_argument("--listen-netns", nargs="+", required=True, help="network namespaces, by name or path")
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    asyncio.run(_serve(arguments.folder, (host, int(port)), arguments.listen_netns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
