"""The embedded Kubernetes API server: state, HTTP and sockets put together.

Written for Mooring and not built on PyPI's `kmock`: that emulator keeps no resource versions. It has neither selectors,
binding, strategic merge, paging, 410 nor bookmarks; only its HTTP code would have been left.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import msgspec
from aiohttp import web

from devcluster.apiserver.cluster import Cluster
from devcluster.apiserver.http.authorization import Authorizer
from devcluster.apiserver.http.faults import Faults
from devcluster.apiserver.http.frontend import BODY_MAX, Frontend
from devcluster.apiserver.http.netns import listen_in
from devcluster.apiserver.http.streaming import DEFAULT_LIMITS, WatchLimits
from devcluster.apiserver.kinds.resources import Catalog
from devcluster.apiserver.store.store import Store
from devcluster.apiserver.store.watch import Watch
from devcluster.apiserver.verbs.create import create

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# At the end open watches have so many seconds to receive their end of stream.
_SHUTDOWN_S = 1.0
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Options:
    """How a server listens and what it remembers.

    `port` 0 takes a free one. `history`: changes remembered a collection, older watches get 410. `netns`: names or
    paths of network namespaces in which the same port is served too. `tls`: certificate and key files, for HTTPS.
    `rbac`: requests need a token and a role, except with the kubeconfig's own token. `admission`: pods run as service
    accounts, and admission policies apply. `service`: address and port of the service `kubernetes`, which is served too
    in each of the namespaces, where the address must be up.
    """

    port: int = 0
    netns: Sequence[str] = ()
    tls: tuple[str, str] | None = None
    history: int = 50_000
    limits: WatchLimits = DEFAULT_LIMITS
    rbac: bool = False
    admission: bool = False
    service: tuple[str, int] | None = None


_DEFAULTS = Options()


class ApiServer:
    """A running server: an async context manager."""

    def __init__(self, options: Options = _DEFAULTS, clock: Callable[[], datetime] | None = None) -> None:
        self._options = options
        now = clock or (lambda: datetime.now(UTC))
        self.cluster = Cluster(Store(options.history), Catalog(), now, admission=options.admission)
        self.faults = Faults()
        self.authorizer = Authorizer(self.cluster) if options.rbac else None
        self._frontend = Frontend(self.cluster, self.faults, options.limits, self.authorizer, options.netns)
        self._runner: web.ServerRunner | None = None
        self.port = options.port
        self._create_namespaces()
        self._create_service()

    def _create_service(self) -> None:
        """Create the service `kubernetes`, by which pods find the API server."""
        kind = self.cluster.catalog.find("", "v1", "services")
        if self._options.service is not None and kind is not None:
            address, port = self._options.service
            spec = {"clusterIP": address, "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}
            create(self.cluster, kind, "default", {"metadata": {"name": "kubernetes"}, "spec": spec}, dry_run=False)

    def _create_namespaces(self) -> None:
        kind = self.cluster.catalog.find("", "v1", "namespaces")
        assert kind is not None
        for name in _NAMESPACES:
            create(self.cluster, kind, None, {"metadata": {"name": name}}, dry_run=False)

    async def __aenter__(self) -> Self:
        server = web.Server(
            self._frontend, request_factory=_request, handler_cancellation=True, access_log=None, keepalive_timeout=3600
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
        await self._runner.setup()
        listener = socket.create_server((_LOOPBACK, self.port), backlog=1024)
        self.port = listener.getsockname()[1]
        inside = [(_LOOPBACK, self.port), *([self._options.service] if self._options.service else ())]
        others = [listen_in(name, *place) for name in self._options.netns for place in inside]
        for one in (listener, *others):
            await web.SockSite(self._runner, one, ssl_context=self._ssl()).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self.cut_watches()
        await self._runner.cleanup()

    def _ssl(self) -> ssl.SSLContext | None:
        if self._options.tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._options.tls)
        return context

    @property
    def url(self) -> str:
        """Return where it listens, without a slash at the end."""
        return f"{'https' if self._options.tls else 'http'}://{_LOOPBACK}:{self.port}"

    def kubeconfig_text(self) -> str:
        """Return a kubeconfig (JSON, which is YAML) that reaches it."""
        place = {"server": self.url}
        if self._options.tls:
            place["certificate-authority"] = self._options.tls[0]
        user = {"token": self.cluster.tokens.admin} if self.authorizer else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "devcluster", "cluster": place}],
            "users": [{"name": "devcluster", "user": user}],
            "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": "devcluster"}}],
            "current-context": "devcluster",
        }
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"

    def cut_watches(self) -> None:
        """End every watch with a clean EOF, as a server does that restarts."""
        for collection in self.cluster.store.collections().values():
            for observer in collection.observers():
                if isinstance(observer, Watch):
                    observer.end()

    def compact(self) -> None:
        """Forget all past changes and open lists: older resource versions and tokens now answer 410."""
        self._frontend.lister.forget()
        for collection in self.cluster.store.collections().values():
            collection.forget()


def _request(
    message: object, payload: object, protocol: object, writer: object, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_MAX)  # type: ignore[arg-type]
