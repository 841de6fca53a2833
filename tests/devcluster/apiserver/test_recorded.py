"""Replay the requests that a real kube-apiserver received, and compare the answers."""

import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from devcluster.apiserver.serve import ApiServer

RECORDED = Path(__file__).parent.parent / "recorded.jsonl"
# This server has no RBAC: these answers were 403 there.
LEFT_OUT = {
    275: "bind refused: no rights on pods/binding",
    279: "patch refused: no rights on pods",
    281: "legacy bind refused: no rights on bindings",
}
WATCH = 285

_ABBREVIATED = re.compile(r"<(\d+) chars>")
_TIMES = {"creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastHeartbeatTime"}
_IDENTITY = {"uid", "resourceVersion"}


class Mapped:
    """The identities of the recording and what they are in the replay."""

    def __init__(self) -> None:
        self.live: dict[tuple[str, str], str] = {}

    def learn(self, recorded: Any, answered: Any) -> None:
        """Take the identities of an object that was answered."""
        for key in _IDENTITY:
            was, now = (one.get("metadata", {}).get(key) for one in (recorded, answered))
            if was and now:
                self.live[key, was] = now

    def request(self, body: Any) -> Any:
        """Rewrite a recorded body for the replay."""
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            return body
        known = {key: self.live.get((key, value), value) for key, value in body["metadata"].items() if key in _IDENTITY}
        return {**body, "metadata": {**body["metadata"], **known}}

    def message(self, text: str) -> str:
        """Rewrite a recorded message; a diff and the size of an etcd message are the server's own."""
        text = text.partition("\n@@")[0]
        text = re.sub(r"larger than max \(\d+ ", "larger than max (N ", text)
        for (key, was), now in self.live.items():
            if key == "uid":
                text = text.replace(was, now)
        return re.sub(
            r"(ResourceVersion in (?:precondition|object meta): )(\d+)",
            lambda found: found[1] + self.live.get(("resourceVersion", found[2]), found[2]),
            text,
        )


def expanded(value: Any) -> Any:
    """Undo the recording's abbreviations of long strings."""
    if isinstance(value, str) and (found := _ABBREVIATED.fullmatch(value)):
        return "x" * int(found[1])
    if isinstance(value, dict):
        return {key: expanded(one) for key, one in value.items()}
    return [expanded(one) for one in value] if isinstance(value, list) else value


def compared(value: Any) -> Any:
    """Leave out identities and empty values, reduce times to being there, list causes once."""
    if isinstance(value, list):
        return [compared(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: compared(one) for key, one in value.items() if key not in _IDENTITY}
    kept = {key: one for key, one in kept.items() if one not in (None, "", {}, [])}
    if "causes" in kept:
        kept["causes"] = sorted({(one["reason"], one["field"]) for one in kept["causes"]})
    return {key: "a time" if key in _TIMES else one for key, one in kept.items()}


def winners_first(pairs: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Order each race as it was decided: answers were recorded as they came in, losers' before the winner's."""
    races: dict[str, int] = {}
    for number, pair in pairs:
        if "/race" in pair["path"] and pair["path"].endswith("/binding"):
            races.setdefault(pair["path"], number)

    def rank(numbered: tuple[int, Any]) -> tuple[int, int]:
        number, pair = numbered
        first = races.get(pair["path"])
        return (number, 1) if first is None else (first, 0 if pair["status"] == 201 else 1)

    return sorted(pairs, key=rank)


Answer = tuple[int, Any]


async def replay(url: str, mapped: Mapped) -> AsyncIterator[tuple[int, Any, Answer]]:
    """Send the recorded requests; yield number, recorded pair and answer of each."""
    pairs = list(enumerate(map(msgspec.json.decode, RECORDED.read_bytes().splitlines())))
    async with aiohttp.ClientSession() as session:
        for number, pair in winners_first(pairs):
            if number in LEFT_OUT or number == WATCH:
                continue
            headers = {"Content-Type": pair["contentType"]}
            body = mapped.request(expanded(pair["request"]))
            data = None if body is None else io.BytesIO(msgspec.json.encode(body))
            async with session.request(pair["method"], url + pair["path"], data=data, headers=headers) as response:
                answered = (response.status, msgspec.json.decode(await response.read()))
            mapped.learn(pair["response"], answered[1])
            yield number, pair, answered


async def test_every_recorded_request_is_answered_as_the_real_server_did(devserver: ApiServer) -> None:
    """Status, reason, details, message and every field of every object equal the recording's."""
    mapped = Mapped()
    differing, count = [], 0
    async for number, pair, answered in replay(devserver.url, mapped):
        count += 1
        expected = (pair["status"], expanded(pair["response"]))
        for one in (expected[1], answered[1]):
            if isinstance(one.get("message"), str):
                one["message"] = mapped.message(one["message"])
            for cause in one.get("details", {}).get("causes", []):
                cause["message"] = mapped.message(cause["message"])
        if (expected[0], compared(expected[1])) != (answered[0], compared(answered[1])):
            differing.append((number, pair["method"], pair["path"], expected, answered))
    assert differing == []
    assert count == 282


# Two answers about one object between which only this object was written to.
STEPS = {
    (35, 36): "an unbound pod is created, then deleted: its mark and its removal",
    (40, 41): "another one",
    (31, 33): "the last finalizer goes: the answer keeps the version of the mark, the removal has a later one",
    (42, 44): "a Binding that is refused writes nothing",
}


async def test_as_many_versions_pass_as_in_the_recording(devserver: ApiServer) -> None:
    """So that watchers see as many states of an object as a real server shows them."""

    def version(body: Any) -> int:
        return int(body["metadata"].get("resourceVersion", 0))

    recorded, ours = {}, {}
    async for number, pair, (_, answered) in replay(devserver.url, Mapped()):
        recorded[number], ours[number] = version(pair["response"]), version(answered)
    for first, second in STEPS:
        assert ours[second] - ours[first] == recorded[second] - recorded[first], STEPS[first, second]
    assert [recorded[second] - recorded[first] for first, second in STEPS] == [2, 2, 0, 1]


async def test_the_recorded_watch_from_the_oldest_version_ends_cleanly(devserver: ApiServer) -> None:
    """The last pair: a watch over everything since version 1 gets every change and ends after timeoutSeconds."""
    pair = msgspec.json.decode(RECORDED.read_bytes().splitlines()[WATCH])
    async with aiohttp.ClientSession() as session:
        await (await session.post(f"{devserver.url}/api/v1/namespaces", json={"metadata": {"name": "t1"}})).read()
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        pods = f"{devserver.url}/api/v1/namespaces/t1/pods"
        await (await session.post(pods, json=pod)).read()
        await (await session.delete(f"{pods}/p")).read()
        async with session.get(
            devserver.url + pair["path"].replace("timeoutSeconds=2", "timeoutSeconds=1")
        ) as response:
            assert response.status == pair["status"]
            lines = (await response.read()).splitlines()
    assert [msgspec.json.decode(line)["type"] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]
