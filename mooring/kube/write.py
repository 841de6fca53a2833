"""Send one idempotent write to the API server until its answer is definite."""

from mooring.kube.client import JSON, Client
from mooring.kube.failures import Unknown
from mooring.kube.retry import until_definite

# Seconds to wait for a repeated write, longer than kube-apiserver takes: it ends a write after 34 s
# (requestTimeoutUpperBound in k8s.io/apiserver, pkg/endpoints/handlers/rest.go), and waits up to 30 s for a webhook.
PATIENCE_S = 40.0


class Write:
    """A write; ``is_uncertain`` is true if an attempt had no definite answer, so that it may have been executed.

    The first attempt has the client's timeout, so that a dead server costs little time. Later attempts wait as long as
    the server can take.
    """

    def __init__(self, client: Client, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> None:
        self._client = client
        self._method = method
        self._body = body
        self._content_type = content_type
        self.path = path
        self.is_uncertain = False

    @until_definite
    async def send(self) -> bytes:
        """Return the body of the answer; raise a definite KubeError."""
        patience_s = PATIENCE_S if self.is_uncertain else None
        try:
            return await self._client.request(
                self._method, self.path, self._body, self._content_type, patience_s=patience_s
            )
        except Unknown:
            self.is_uncertain = True
            raise
