"""Count the calls in progress, so that a server can exit after the last one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

import grpc

_Behaviour = Callable[[bytes, Any], Awaitable[Any]]


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """The methods of ``inner``, which are coroutines, with a count of the calls in progress."""

    def __init__(self, inner: grpc.GenericRpcHandler) -> None:
        self._inner = inner
        self._in_progress = 0
        self._call_end = asyncio.Event()
        # The cache is bounded, because callers choose the names of methods.
        self._handler = lru_cache(maxsize=256)(self._count)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method; None if ``inner`` has none."""
        handler = self._inner.service(details)
        return None if handler is None else self._handler(handler)

    def count_calls(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> Mapping[str, grpc.RpcMethodHandler]:
        """Return handlers for methods that the server registers by name, with their calls counted too."""
        return {name: self._count(handler) for name, handler in handlers.items()}

    async def wait_for_last(self) -> None:
        """Wait until no call is in progress."""
        while self._in_progress:
            self._call_end.clear()
            await self._call_end.wait()

    def _count(self, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=self._around(handler.unary_unary))
        return handler._replace(unary_stream=self._around(handler.unary_stream))

    def _around(self, behaviour: _Behaviour) -> _Behaviour:
        async def call(request: bytes, context: Any) -> Any:
            self._in_progress += 1
            try:
                return await behaviour(request, context)
            finally:
                self._in_progress -= 1
                self._call_end.set()

        return call
