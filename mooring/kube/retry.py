"""The one retry policy for requests: until the answer is definite, with exponential backoff and random jitter."""

import functools
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


# The first wait is at most 0.2 s, the next twice that and so on, to 30 s. So clients do not all hit an API server that
# restarts.
_backoff = tenacity.wait_random_exponential(multiplier=0.2, max=30)


def _failed(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _report(state: tenacity.RetryCallState) -> None:
    path = next((argument for argument in state.args if isinstance(argument, str)), "") or getattr(
        state.args[0], "path", ""
    )
    _log.warning("request is repeated", path=path, reason=str(_failed(state)), attempt=state.attempt_number)


def _wait(state: tenacity.RetryCallState) -> float:
    failed = _failed(state)
    return failed.retry_after_s if isinstance(failed, Throttled) else _backoff(state)


def _policy(repeats: Callable[[BaseException], bool]) -> Decorator:
    """Return the decorator that retries a call while ``repeats`` returns true for its failure.

    Tenacity is called only once something has failed: its bookkeeping for an attempt takes as long as the whole
    request.
    """
    policy = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(repeats), wait=_wait, before_sleep=_report, reraise=True
    )

    def decorate(call: Call[P, R]) -> Call[P, R]:
        @functools.wraps(call)
        async def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return await call(*args, **kwargs)
            except KubeError as failed:
                # A list, so that the failure is given to tenacity once.
                first = [failed]

            async def again(*args: P.args, **kwargs: P.kwargs) -> R:
                if first:
                    raise first.pop()
                return await call(*args, **kwargs)

            return await policy.wraps(again)(*args, **kwargs)

        return attempt

    return decorate


# For reads that must succeed: a refusal is retried too, since permissions and tokens may be fixed meanwhile.
retry = _policy(lambda failed: isinstance(failed, KubeError) and not isinstance(failed, Gone))
# For reads of a resource that the API server may not serve, or not to this account: either is a result.
retry_if_served = _policy(
    lambda failed: isinstance(failed, KubeError) and not isinstance(failed, Gone | NotFound | Refused)
)
# For reads of one object that may be deleted: its absence is a result.
retry_unless_not_found = _policy(lambda failed: isinstance(failed, KubeError) and not isinstance(failed, NotFound))
# For writes: retried until the API server's answer is definite. The write must be idempotent.
until_definite = _policy(lambda failed: isinstance(failed, Unknown | Throttled))
