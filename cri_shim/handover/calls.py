"""Count the calls that a server works on, so that it ends after the last one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

import grpc

_Behaviour = Callable[[bytes, Any], Awaitable[Any]]


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no types
    """The methods of ``inner``, which are coroutines; those in progress are counted."""

    def __init__(self, inner: grpc.GenericRpcHandler) -> None:
        self._inner = inner
        self._in_progress = 0
        self._ended = asyncio.Event()
        # A handler is a value; callers choose the names of methods, so there are bounds.
        self._counted = lru_cache(maxsize=256)(self._count)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return how a method is answered; None for one that ``inner`` does not answer."""
        handler = self._inner.service(details)
        return None if handler is None else self._counted(handler)

    def counted(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> Mapping[str, grpc.RpcMethodHandler]:
        """Return handlers that the server registers by name beside these, counted as well."""
        return {name: self._count(handler) for name, handler in handlers.items()}

    async def none_left(self) -> None:
        """Return when no call is in progress."""
        while self._in_progress:
            self._ended.clear()
            await self._ended.wait()

    def _count(self, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        if handler.unary_unary is not None:
            return handler._replace(unary_unary=self._around(handler.unary_unary))
        return handler._replace(unary_stream=self._around(handler.unary_stream))

    def _around(self, behaviour: _Behaviour) -> _Behaviour:
        async def counted(request: bytes, context: Any) -> Any:
            self._in_progress += 1
            try:
                return await behaviour(request, context)
            finally:
                self._in_progress -= 1
                self._ended.set()

        return counted
