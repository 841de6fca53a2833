"""Repeating: what is repeated, how long it waits, and that nothing is paid for it where nothing fails."""

import asyncio

import pytest
import tenacity

from mooring.kube.failures import Conflict, Gone, KubeError, NotFound, Refused, Status, Throttled, Unknown
from mooring.kube.retry import Decorator, retry, retry_unless_not_found, until_definite

FAILURES: dict[str, KubeError] = {
    "unknown": Unknown(Status(0)),
    "throttled": Throttled(Status(429), 0.0),
    "refused": Refused(Status(403)),
    "not found": NotFound(Status(404)),
    "conflict": Conflict(Status(409)),
    "gone": Gone(Status(410)),
}
REPEATED = {
    "retry": (retry, {"unknown", "throttled", "refused", "not found", "conflict"}),
    "retry_unless_not_found": (retry_unless_not_found, {"unknown", "throttled", "refused", "conflict", "gone"}),
    "until_definite": (until_definite, {"unknown", "throttled"}),
}


class Server:
    """Fails as planned, then answers."""

    def __init__(self, *failures: KubeError) -> None:
        self.left = list(failures)
        self.asked = 0

    async def answer(self, question: str) -> str:
        self.asked += 1
        if self.left:
            raise self.left.pop(0)
        return f"{question}!"


@pytest.mark.parametrize("policy", REPEATED)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_is_repeated_or_ends_the_call_as_its_policy_says(policy: str, failure: str) -> None:
    """A call is repeated once for each failure, and no more often."""
    decorate, repeated = REPEATED[policy]
    server = Server(FAILURES[failure])
    ask = decorate(server.answer)
    if failure in repeated:
        assert await ask("what") == "what!"
        assert server.asked == 2
    else:
        with pytest.raises(type(FAILURES[failure])):
            await ask("what")
        assert server.asked == 1


async def test_each_failure_in_a_row_costs_one_attempt() -> None:
    """The first attempt is counted exactly once."""
    server = Server(*[Throttled(Status(429), 0.0)] * 3)
    assert await until_definite(server.answer)("what") == "what!"
    assert server.asked == 4


async def test_the_wait_is_the_one_that_the_server_asked_for() -> None:
    """Retry-After, in seconds, for the first failure as for later ones."""
    server = Server(Throttled(Status(429), 0.2), Throttled(Status(429), 0.1))
    began = asyncio.get_running_loop().time()
    assert await until_definite(server.answer)("what") == "what!"
    assert asyncio.get_running_loop().time() - began >= 0.3


@pytest.mark.parametrize("policy", [retry, retry_unless_not_found, until_definite])
async def test_a_call_that_succeeds_does_not_reach_tenacity(policy: Decorator, monkeypatch: pytest.MonkeyPatch) -> None:
    """tenacity's bookkeeping of one attempt takes as long as a request."""

    def refuse(*_: object) -> None:
        raise AssertionError("tenacity was asked")

    monkeypatch.setattr(tenacity.AsyncRetrying, "__call__", refuse)
    assert await policy(Server().answer)("what") == "what!"
