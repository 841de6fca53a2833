"""API servers to test against: devcluster's own always, a real kube-apiserver where one is named.

A test that takes `api` runs against both. `devserver` is devcluster's server with its own controls (faults,
compaction), for what cannot be provoked in a real one.
"""

import asyncio
import base64
import itertools
import os
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from devcluster.apiserver.serve import ApiServer

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
OPERATIONS = "application/json-patch+json"
_fresh = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Api:
    """A server under test and a namespace of the test's own."""

    url: str
    session: aiohttp.ClientSession
    namespace: str
    tls: ssl.SSLContext | bool = True

    @property
    def pods(self) -> str:
        """Return the path of the namespace's pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> tuple[int, Any]:
        """Send a request; return HTTP status and the answer, parsed; text where it is not JSON."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        async with self.session.request(method, self.url + path, data=data, headers=headers, ssl=self.tls) as response:
            plain = response.content_type == "text/plain"
            return response.status, await response.text() if plain else msgspec.json.decode(await response.read())

    async def ok(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """Send a request that must succeed; return the answer."""
        code, answer = await self.call(method, path, body, content_type)
        assert code < 300, answer
        return answer

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator["Events"]:
        """Open a watch."""
        timeout = aiohttp.ClientTimeout(total=60)
        parameters = {"watch": "1", **query}
        async with self.session.get(self.url + path, params=parameters, ssl=self.tls, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield Events(response)

    async def pod(self, name: str, **metadata: Any) -> Any:
        """Create a small pod."""
        return await self.ok("POST", self.pods, pod(name, **metadata))

    async def bind(self, name: str, node: str = "n1", **metadata: Any) -> tuple[int, Any]:
        """Bind a pod."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
        return await self.call("POST", f"{self.pods}/{name}/binding", binding)


@dataclass(slots=True)
class Events:
    """A watch's events, one by one."""

    response: aiohttp.ClientResponse
    _unread: bytes = b""

    async def next(self) -> Any:
        """Return the next event, None at a clean end."""
        while b"\n" not in self._unread:
            chunk = await asyncio.wait_for(self.response.content.readany(), 90)
            if not chunk:
                assert self._unread == b""
                return None
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return msgspec.json.decode(line)

    async def take(self, count: int) -> list[Any]:
        """Return the next events, as many as requested."""
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Any]:
        """Return all events up to the clean end."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


def pod(name: str, **metadata: Any) -> Any:
    """Return a small pod's manifest; it waits for a scheduler that does not exist."""
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False}
    spec["containers"] = [{"name": "c", "image": "registry.example/pause:1"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
async def devserver() -> AsyncIterator[ApiServer]:
    """Run devcluster's server."""
    async with ApiServer() as server:
        yield server


@asynccontextmanager
async def connected(url: str, tls: ssl.SSLContext | bool = True, token: str = "") -> AsyncIterator[Api]:
    """Connect to a server and make a namespace there."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:
        api = Api(url, session, f"t{next(_fresh)}-{secrets.token_hex(3)}", tls)
        await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        yield api
        await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")


@pytest.fixture
async def dev(devserver: ApiServer) -> AsyncIterator[Api]:
    """Connect to devcluster's server only."""
    async with connected(devserver.url) as api:
        yield api


@pytest.fixture(params=["devcluster", pytest.param("real", marks=pytest.mark.apiserver)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """Connect to devcluster's server, and once more to a real one."""
    if request.param == "devcluster":
        async with ApiServer() as server, connected(server.url) as api:
            yield api
        return
    access: Access = request.getfixturevalue("real_server")
    async with connected(access.url, access.context(), access.token) as api:
        yield api


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a real server."""

    url: str
    token: str = ""
    authority: str = ""
    certificate: tuple[str, str] | None = None

    def context(self) -> ssl.SSLContext | bool:
        """Return what TLS needs; without an authority the certificate is not checked (a server of the test's own)."""
        if not self.url.startswith("https"):
            return True
        context = ssl.create_default_context(cadata=self.authority or None)
        if not self.authority:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Access:
    """Reach the server that KUBECONFIG names, else one of our own."""
    named = os.environ.get("KUBECONFIG") or request.getfixturevalue("own_server")
    return _from_kubeconfig(Path(named), tmp_path_factory.mktemp("real"))


def _from_kubeconfig(path: Path, folder: Path) -> Access:
    config = yaml.safe_load(path.read_text())
    context = next(one["context"] for one in config["contexts"] if one["name"] == config["current-context"])
    cluster = next(one["cluster"] for one in config["clusters"] if one["name"] == context["cluster"])
    user = next(one["user"] for one in config["users"] if one["name"] == context["user"])

    def content(section: dict[str, str], name: str) -> bytes:
        if inline := section.get(f"{name}-data"):
            return base64.b64decode(inline)
        return Path(section[name]).read_bytes() if name in section else b""

    files = (folder / "client.crt", folder / "client.key")
    for file, name in zip(files, ("client-certificate", "client-key"), strict=True):
        file.write_bytes(content(user, name))
    certificate = (str(files[0]), str(files[1])) if files[0].stat().st_size else None
    authority = content(cluster, "certificate-authority").decode()
    return Access(cluster["server"].rstrip("/"), user.get("token", ""), authority, certificate)
