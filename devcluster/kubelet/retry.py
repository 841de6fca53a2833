"""The program's one retry policy: for ever, with pauses that grow to ten seconds."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import tenacity

from mooring.kube.failures import KubeError

_FIRST_S = 0.5
_MOST_S = 10.0


class Unfinished(Exception):  # noqa: N818 - not an error of its own: what failed was reported where it failed
    """A round of work of which a part failed: check again and do what is left."""


def retrying(pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> tenacity.AsyncRetrying:
    """Return a caller that repeats a function until it succeeds; ``pause`` waits, and may be cut short."""
    return tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type((Unfinished, KubeError, grpc.RpcError)),
        wait=tenacity.wait_random_exponential(multiplier=_FIRST_S, min=_FIRST_S, max=_MOST_S),
        sleep=pause,
    )
