"""The HTTP side: read a request, let the verbs or a stream answer it, write the answer, fail where planned.

Built on aiohttp's low-level server: one function sees every request, without a router and middleware.
"""

import asyncio
import json
import logging
from collections.abc import Sequence

from aiohttp import web

from devcluster.apiserver.access.admission import ASKING, WARNINGS
from devcluster.apiserver.call import Call, Reply
from devcluster.apiserver.cluster import Cluster
from devcluster.apiserver.formats import discovery
from devcluster.apiserver.http import logs
from devcluster.apiserver.http.authorization import Authorizer
from devcluster.apiserver.http.faults import Fault, Faults
from devcluster.apiserver.http.streaming import Stream, WatchLimits
from devcluster.apiserver.objects import encode
from devcluster.apiserver.routes import Target, group_of, parse
from devcluster.apiserver.status import ApiError, NoSuchPageError
from devcluster.apiserver.store.listing import Lister
from devcluster.apiserver.verbs.answer import answer

# A real server refuses longer bodies, in bytes.
BODY_MAX = 3 * 1024 * 1024
_JSON = {"Content-Type": "application/json"}
_OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2"

_log = logging.getLogger(__name__)


class Frontend:
    """Answers HTTP requests from a cluster's state."""

    def __init__(
        self,
        cluster: Cluster,
        faults: Faults,
        limits: WatchLimits,
        authorizer: Authorizer | None = None,
        networks: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._authorizer = authorizer
        self._networks = networks
        self._faults = faults
        self._limits = limits
        self.lister = Lister()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request: the broad `except` of this program."""
        fault = self._faults.take(request.method, request.path_qs) if self._faults.planned else None
        warnings: list[str] = []
        WARNINGS.set(warnings)
        try:
            if fault is not None and (failed := await fail_first(fault, request)) is not None:
                return failed
            response = await self._respond(request)
        except NoSuchPageError as error:
            response = web.Response(status=error.code, text=f"{error.message}\n")
        except ApiError as error:
            response = _response(Reply(error.code, encode(error.body())))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:  # noqa: BLE001 - one bad request must not end the server
            _log.exception("request failed: %s %s", request.method, request.path_qs)
            response = _response(Reply(500, encode(ApiError(500, "InternalError", "internal error").body())))
        if fault is not None and fault.kind == "drop_after":
            drop(request)
        for text in warnings:
            # apimachinery/pkg/util/net/http.go, NewWarningHeader.
            response.headers.add("Warning", f"299 - {json.dumps(text)}")
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        target = parse(request.path)
        if target is None:
            return self._discover(request)
        call = await _read(request, target)
        if self._authorizer is not None:
            ASKING.set(self._authorizer.admit(request.headers, call))
        if target.plural == "pods" and target.subresource == "log":
            return await logs.relay(self._cluster, self._networks, call, request)
        if call.watching:
            return await _stream(request, Stream(self._cluster, call, self._limits))
        return _response(answer(self._cluster, self.lister, call))

    def _discover(self, request: web.BaseRequest) -> web.StreamResponse:
        text = discovery.text_page(request.path)
        if text is not None:
            return web.Response(text=text)
        if request.path == "/openapi/v2" and _OPENAPI_PROTOBUF in request.headers.get("Accept", ""):
            # No bytes are a valid protobuf message: the empty document.
            return web.Response(body=b"", content_type="application/octet-stream")
        page = discovery.page(self._cluster.catalog, request.path)
        if page is None:
            raise self._cluster.missing(group_of(request.path))
        return _response(Reply(200, encode(page)))


async def _read(request: web.BaseRequest, target: Target) -> Call:
    if (request.content_length or 0) > BODY_MAX:
        raise _too_large()
    try:
        body = await request.read() if request.can_read_body else b""
    except web.HTTPRequestEntityTooLarge:
        raise _too_large() from None
    query = dict(request.query) if request.query_string else {}
    accept = request.headers.get("Accept", "")
    return Call(request.method, target, query, _content_type(request), accept, body)


def _content_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip()


def _too_large() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {BODY_MAX}")


def _response(reply: Reply) -> web.Response:
    return web.Response(status=reply.code, body=reply.body, headers=_JSON)


async def _stream(request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
    response = web.StreamResponse(headers=_JSON)
    response.enable_chunked_encoding()
    await response.prepare(request)
    await stream.run(response.write)
    await response.write_eof()
    return response


async def fail_first(fault: Fault, request: web.BaseRequest) -> web.StreamResponse | None:
    """Apply a fault before the request is handled; None to go on."""
    if fault.kind == "delay":
        await asyncio.sleep(fault.delay_s)
    elif fault.kind == "hold":
        assert fault.until is not None, "a fault of this kind says until when"
        await fault.until()
    elif fault.kind == "drop_before":
        drop(request)
        return web.Response()
    elif fault.kind == "answer":
        await request.read()
        await asyncio.sleep(fault.delay_s)
        return _response(Reply(fault.code, encode(ApiError(fault.code, fault.reason, fault.message).body())))
    elif fault.kind == "body":
        await request.read()
        return _response(Reply(fault.code, fault.body))
    elif fault.kind == "page":
        await request.read()
        return web.Response(status=fault.code, text="<html>a fault planned by a test</html>", content_type="text/html")
    return None


def drop(request: web.BaseRequest) -> None:
    """Break a request's connection."""
    if request.transport is not None:
        request.transport.abort()
