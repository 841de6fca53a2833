"""The one policy by which requests are repeated: until the answer is definite, ever more slowly, at random times."""

import structlog
import tenacity

from mooring.kube.failures import Gone, KubeError, NotFound, Throttled, Unknown

_log = structlog.get_logger()
# First wait at most 0.2 s, then twice that and so on, to 30 s: an API server that restarts is not met by all at once.
_backoff = tenacity.wait_random_exponential(multiplier=0.2, max=30)


def _failed(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _report(state: tenacity.RetryCallState) -> None:
    path = next((argument for argument in state.args if isinstance(argument, str)), "")
    _log.warning("request is repeated", path=path, reason=str(_failed(state)), attempt=state.attempt_number)


def _wait(state: tenacity.RetryCallState) -> float:
    failed = _failed(state)
    return failed.retry_after_s if isinstance(failed, Throttled) else _backoff(state)


# For reads that must succeed: a refusal is repeated too, since permissions and tokens are mended while we run.
persist = tenacity.retry(
    retry=tenacity.retry_if_exception(lambda failed: isinstance(failed, KubeError) and not isinstance(failed, Gone)),
    wait=_wait,
    before_sleep=_report,
    reraise=True,
)
# For reads of one object that may be gone: that it is not there is an answer.
persist_unless_gone = tenacity.retry(
    retry=tenacity.retry_if_exception(lambda bad: isinstance(bad, KubeError) and not isinstance(bad, NotFound)),
    wait=_wait,
    before_sleep=_report,
    reraise=True,
)
# For writes: repeated until the API server has said what became of them. The write must be idempotent.
until_definite = tenacity.retry(
    retry=tenacity.retry_if_exception_type((Unknown, Throttled)),
    wait=_wait,
    before_sleep=_report,
    reraise=True,
)
