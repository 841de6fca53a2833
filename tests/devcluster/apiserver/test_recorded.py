"""Replay what a real kube-apiserver was asked, and compare the answers."""

import io
import re
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


async def test_every_recorded_request_is_answered_as_the_real_server_did(devserver: ApiServer) -> None:
    """Status, reason, details, message and every field of every object equal the recording's."""
    pairs = list(enumerate(map(msgspec.json.decode, RECORDED.read_bytes().splitlines())))
    mapped = Mapped()
    differing = []
    async with aiohttp.ClientSession() as session:
        for number, pair in winners_first(pairs):
            if number in LEFT_OUT or number == WATCH:
                continue
            headers = {"Content-Type": pair["contentType"]}
            body = mapped.request(expanded(pair["request"]))
            data = None if body is None else io.BytesIO(msgspec.json.encode(body))
            url = devserver.url + pair["path"]
            async with session.request(pair["method"], url, data=data, headers=headers) as response:
                answered = (response.status, msgspec.json.decode(await response.read()))
            expected = (pair["status"], expanded(pair["response"]))
            mapped.learn(expected[1], answered[1])
            for one in (expected[1], answered[1]):
                if isinstance(one.get("message"), str):
                    one["message"] = mapped.message(one["message"])
                for cause in one.get("details", {}).get("causes", []):
                    cause["message"] = mapped.message(cause["message"])
            if (expected[0], compared(expected[1])) != (answered[0], compared(answered[1])):
                differing.append((number, pair["method"], pair["path"], expected, answered))
    assert differing == []
    assert len(pairs) - len(LEFT_OUT) - 1 == 282


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
    assert [msgspec.json.decode(line)["type"] for line in lines] == ["ADDED", "DELETED"]
