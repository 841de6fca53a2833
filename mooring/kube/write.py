"""One write to the API server, sent until its answer is definite; it must be idempotent."""

from mooring.kube.client import JSON, Client
from mooring.kube.failures import Unknown
from mooring.kube.retry import until_definite

# In seconds, longer than kube-apiserver takes for a write: it ends one after 34 s (requestTimeoutUpperBound in
# k8s.io/apiserver, pkg/endpoints/handlers/rest.go), and waits up to 30 s for a webhook.
PATIENCE_S = 40.0


class Write:
    """A write, and whether an earlier copy of it is in doubt: ``lost`` is true if any answer was not definite.

    The first copy has the client's own timeout, so that a server that went away costs little. Later ones wait for as
    long as the server may take.
    """

    def __init__(self, client: Client, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> None:
        self._client = client
        self._method = method
        self._body = body
        self._content_type = content_type
        self.path = path
        self.lost = False

    @until_definite
    async def send(self) -> bytes:
        """Return the body of the answer; raise a KubeError that is definite."""
        patience_s = PATIENCE_S if self.lost else None
        try:
            return await self._client.request(
                self._method, self.path, self._body, self._content_type, patience_s=patience_s
            )
        except Unknown:
            self.lost = True
            raise
