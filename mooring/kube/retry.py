"""The retry policy for all requests: retry until the answer is definite, with exponential backoff and jitter."""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

import structlog
import tenacity

from mooring.kube.failures import Gone, KubeError, NotFound, Refused, Throttled, Unknown

_log = structlog.get_logger()
P = ParamSpec("P")
R = TypeVar("R")
Call = Callable[P, Awaitable[R]]


class Decorator(Protocol):
    """A decorator that keeps the signature of a coroutine function."""

    def __call__(self, call: Call[P, R], /) -> Call[P, R]: ...


# The first wait is at most 0.2 s, and the limit doubles up to 30 s, so that clients do not overload an API server that
# restarts.
_backoff = tenacity.wait_random_exponential(multiplier=0.2, max=30)


class Backoff:
    """Waits between the attempts of a watch that bring nothing, such as a stream that is answered with 410.

    Each wait is random, up to a limit that doubles from 0.8 s to 30 s. If thousands of watches expire in the same
    moment, for example when the API server restarts, their lists are spread. The limit starts again after an attempt
    that lasted 30 s. Source of the two limits: NewReflectorWithOptions in client-go's tools/cache/reflector.go, which
    resets after 2 minutes.
    """

    _FIRST_S, _MOST_S, _LASTED_S = 0.8, 30.0, 30.0

    def __init__(self) -> None:
        self._limit_s = self._FIRST_S
        self._since = float("-inf")

    async def wait(self) -> None:
        """Wait before the next attempt."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._since >= self._LASTED_S:
            self._limit_s = self._FIRST_S
        limit_s, self._limit_s = self._limit_s, min(self._limit_s * 2, self._MOST_S)
        await asyncio.sleep(random.uniform(0, limit_s))
        self._since = loop.time()


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _report(state: tenacity.RetryCallState) -> None:
    path = next((argument for argument in state.args if isinstance(argument, str)), "") or getattr(
        state.args[0], "path", ""
    )
    _log.warning("request is retried", path=path, reason=str(_error(state)), attempt=state.attempt_number)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the seconds to wait: never less than the API server asked for, and random beyond that."""
    error = _error(state)
    return max(_backoff(state), error.retry_after_s if isinstance(error, Throttled) else 0.0)


def _policy(repeats: Callable[[BaseException], bool]) -> Decorator:
    """Return the decorator that retries a call while ``repeats`` returns true for its failure.

    Tenacity is called only after a failure, because its bookkeeping for an attempt takes as long as the whole request.
    """
    policy = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(repeats), wait=_wait, before_sleep=_report, reraise=True
    )

    def decorate(call: Call[P, R]) -> Call[P, R]:
        @functools.wraps(call)
        async def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return await call(*args, **kwargs)
            except KubeError as error:
                # A list, so that tenacity gets the failure only once.
                first = [error]

            async def repeat(*args: P.args, **kwargs: P.kwargs) -> R:
                if first:
                    raise first.pop()
                return await call(*args, **kwargs)

            return await policy.wraps(repeat)(*args, **kwargs)

        return attempt

    return decorate


# For reads that must succeed: rejected requests are also retried, because permissions and tokens may be fixed.
retry = _policy(lambda error: isinstance(error, KubeError) and not isinstance(error, Gone))
# For reads of a resource that may not exist or may be forbidden to this account: both are results.
retry_if_served = _policy(
    lambda error: isinstance(error, KubeError) and not isinstance(error, Gone | NotFound | Refused)
)
# For reads of an object that may have been deleted, which is a result.
retry_unless_not_found = _policy(lambda error: isinstance(error, KubeError) and not isinstance(error, NotFound))
# For writes, which must be idempotent: retried until the API server's answer is definite.
until_definite = _policy(lambda error: isinstance(error, Unknown | Throttled))
