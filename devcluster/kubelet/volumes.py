"""Make a pod's volumes on the node: host paths, empty folders, config maps, and projected volumes.

A projected token is requested by TokenRequest, bound to this pod, as by the real kubelet: the API server then knows
its node. To update volumes is to make them again.
"""

import base64
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from devcluster.kubelet.plan.pods import ContainerSpec, KeyToPath, Pod, ProjectedSource, Volume
from devcluster.kubelet.plan.view import Mount
from mooring.kube.client import Client
from mooring.kube.failures import NotFound

# If expirationSeconds is missing.
_TOKEN_S = 3600


class VolumeError(Exception):
    """A volume that cannot be made: which, and why, as in the kubelet's event FailedMount."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """The volumes of a node's pods below ``folder`` (the real kubelet's /var/lib/kubelet/pods); clock in seconds."""

    client: Client
    folder: Path
    clock: Callable[[], float]

    async def make(self, pod: Pod) -> Mapping[str, Path]:
        """Make every volume of a pod and return its path by name; raise VolumeError, KubeError."""
        return {volume.name: await self._make(pod, volume) for volume in pod.spec.volumes}

    def remove(self, uid: str) -> None:
        """Remove what was made for a pod; host paths stay."""
        shutil.rmtree(self.folder / uid, ignore_errors=True)

    async def _make(self, pod: Pod, volume: Volume) -> Path:
        if volume.host_path is not None:
            return _host_path(volume.host_path.path, volume.host_path.type, volume.name)
        folder = self.folder / pod.metadata.uid / "volumes" / volume.name
        folder.mkdir(parents=True, exist_ok=True)
        source = volume.config_map
        if source is not None:
            for name, content in await self._config_map(pod, source.name, source.items, optional=source.optional):
                _write(folder / name, content)
        for one in volume.projected.sources if volume.projected else ():
            for name, content in await self._project(pod, one, folder):
                _write(folder / name, content)
        return folder

    async def _project(self, pod: Pod, source: ProjectedSource, folder: Path) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        if source.config_map is not None:
            asked = source.config_map
            found += await self._config_map(pod, asked.name, asked.items, optional=asked.optional)
        if source.service_account_token is not None:
            wanted = source.service_account_token
            found.append(
                (wanted.path, await self._token(pod, wanted.expiration_seconds or _TOKEN_S, folder / wanted.path))
            )
        for item in source.downward_api.items if source.downward_api else ():
            known = {"metadata.namespace": pod.metadata.namespace, "metadata.name": pod.metadata.name}
            found.append((item.path, known.get(item.field_ref.field_path, "").encode()))
        return found

    async def _config_map(
        self, pod: Pod, name: str, items: tuple[KeyToPath, ...], *, optional: bool
    ) -> list[tuple[str, bytes]]:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/configmaps/{name}"
        try:
            document = msgspec.json.decode(await self.client.request("GET", path))
        except NotFound as missing:
            if optional:
                return []
            raise VolumeError(f'configmap "{name}" not found') from missing
        contents = dict(_contents(document))
        paths = {item.key: item.path for item in items} or {key: key for key in contents}
        return [(where, contents[key]) for key, where in paths.items() if key in contents]

    async def _token(self, pod: Pod, seconds: int, known: Path) -> bytes:
        """Return the existing token while it is young, else a new one."""
        if known.exists() and self.clock() - known.stat().st_mtime < seconds / 2:
            return known.read_bytes()
        about = pod.metadata
        bound = {"kind": "Pod", "apiVersion": "v1", "name": about.name, "uid": about.uid}
        body = {"spec": {"expirationSeconds": seconds, "boundObjectRef": bound}}
        account = f"/api/v1/namespaces/{about.namespace}/serviceaccounts/{pod.spec.service_account_name}"
        answer = await self.client.request("POST", f"{account}/token", msgspec.json.encode(body))
        return str(msgspec.json.decode(answer)["status"]["token"]).encode()


def mounts(spec: ContainerSpec, volumes: Mapping[str, Path]) -> Iterator[Mount]:
    """Yield a container's mounts of the volumes that were made; raise VolumeError for one that the pod lacks."""
    for mount in spec.volume_mounts:
        if mount.name not in volumes:
            raise VolumeError(f"container {spec.name!r} mounts volume {mount.name!r}, which the pod has not")
        source = volumes[mount.name] / mount.sub_path if mount.sub_path else volumes[mount.name]
        yield Mount(mount.mount_path, str(source), mount.read_only)


def _host_path(path: str, kind: str, name: str) -> Path:
    there = Path(path)
    if kind == "DirectoryOrCreate":
        there.mkdir(mode=0o755, parents=True, exist_ok=True)
    if kind == "Directory" and not there.is_dir():
        raise VolumeError(
            f'MountVolume.SetUp failed for volume "{name}": hostPath type check failed: {path} is not a directory'
        )
    return there


def _contents(document: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, bytes]]:
    for key, text in (document.get("data") or {}).items():
        yield key, text.encode()
    for key, coded in (document.get("binaryData") or {}).items():
        yield key, base64.b64decode(coded)


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically: a program may be reading its token."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() == content:
        return
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.chmod(0o644)
    new.replace(path)
