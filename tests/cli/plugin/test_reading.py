"""Lists as they come: in pages that expire, with objects that do not decode; and the line that shows the progress."""

import io
import json
from collections.abc import Mapping

import pytest

from cli.plugin.output.progress import Progress
from cli.plugin.reading import Reader, UnreadableError
from cli.plugin.reports.objects import Event, Node
from mooring.kube.access import Access
from mooring.kube.client import JSON, Client
from mooring.kube.failures import Gone, Refused, Status


class Pages(Client):
    """Answers from a list of pages, each a body or an error; keeps the tokens of the requests."""

    def __init__(self, *pages: object) -> None:
        super().__init__(Access("http://nowhere"))
        self._left = list(pages)
        self.tokens: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        patience_s: float | None = None,
    ) -> bytes:
        assert (method, body, content_type, patience_s) == ("GET", None, JSON, None)
        self.tokens.append((params or {}).get("continue", ""))
        page = self._left.pop(0)
        if isinstance(page, Exception):
            raise page
        return page if isinstance(page, bytes) else json.dumps(page).encode()


def page(*nodes: object, token: str = "") -> object:
    return {"kind": "List", "items": list(nodes), "metadata": {"continue": token, "resourceVersion": "7"}}


def named(name: str) -> object:
    return {"metadata": {"name": name}}


async def test_a_list_is_read_page_by_page_and_progress_is_told_between() -> None:
    """Where the pages end, nothing more is printed."""
    told: list[tuple[str, int]] = []
    client = Pages(page(named("a"), named("b"), token="1"), page(named("c")))
    found = await Reader(client, lambda what, count: told.append((what, count))).all("/api/v1/nodes", Node)
    assert [one.metadata.name for one in found or ()] == ["a", "b", "c"]
    assert client.tokens == ["", "1"]
    assert told == [("nodes", 2)]


async def test_a_list_whose_pages_have_expired_is_read_again_and_shows_nothing_twice() -> None:
    """The number of attempts is limited."""
    gone = Gone(Status(410, "Expired", "too old"))
    client = Pages(page(named("a"), token="1"), gone, page(named("a"), named("b")))
    found = await Reader(client).all("/api/v1/nodes", Node)
    assert [one.metadata.name for one in found or ()] == ["a", "b"]
    with pytest.raises(Gone):
        await Reader(Pages(gone, gone, gone)).all("/api/v1/nodes", Node)


async def test_an_object_that_does_not_decode_is_left_out_by_name() -> None:
    """The other objects of its page are shown."""
    odd = {"metadata": {"name": "odd", "annotations": ["x"]}}
    reader = Reader(Pages(page(named("a"), odd, named("b"))))
    found = await reader.all("/api/v1/nodes", Node)
    assert [one.metadata.name for one in found or ()] == ["a", "b"]
    (note,) = reader.notes
    assert note.startswith("node 'odd' is not shown: Expected `object | null`, got `array`")


async def test_a_time_without_a_zone_leaves_its_event_out() -> None:
    """An object that does not decode could not be compared with the others."""
    naive = {"metadata": {"name": "e"}, "lastTimestamp": "2026-01-01T00:00:00"}
    reader = Reader(Pages(page(naive, {"metadata": {"name": "f"}, "eventTime": "2026-01-01T00:00:00Z"})))
    found = await reader.all("/api/v1/namespaces/default/events", Event)
    assert [one.metadata.name for one in found or ()] == ["f"]
    assert len(reader.notes) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>",
        b'{"items":[{]}',
        b"[]",
        b'{"items":5}',
        b"{}",
        b'{"kind":"NodeList","metadata":{},"items":[]}',
        b'{"kind":"Status","status":"Success","metadata":{"resourceVersion":"7"}}',
        b'{"items":[{"metadata":{"name":"\xff"}}],"metadata":{"name":"\xff"}}',
    ],
)
async def test_an_answer_that_is_not_an_api_servers_is_reported_as_such(body: bytes) -> None:
    """A proxy's sign-in page, a body that was cut off: the path and what is odd, and no traceback."""
    said = r"^GET /api/v1/nodes(/n)?: the answer is not a Kubernetes API server's: "
    with pytest.raises(UnreadableError, match=said):
        await Reader(Pages(body)).all("/api/v1/nodes", Node)
    with pytest.raises(UnreadableError, match=said):
        await Reader(Pages(body)).one("/api/v1/nodes/n", Node)


async def test_without_the_right_to_what_a_command_is_about_there_is_no_answer() -> None:
    """The command fails: an empty table would mean that nothing exists."""
    forbidden = Refused(Status(403, "Forbidden", "no"))
    assert await Reader(Pages(forbidden)).all("/api/v1/nodes", Node) is None
    with pytest.raises(Refused, match=r"^403 Forbidden: no$"):
        await Reader(Pages(forbidden)).must("/api/v1/nodes", Node)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only_and_only_of_long_work() -> None:
    """It is wiped at the end; a pipe and short work see nothing."""
    now = [0.0]
    terminal, pipe = Terminal(), io.StringIO()
    shown, hidden = Progress(terminal, lambda: now[0]), Progress(pipe, lambda: now[0])
    shown.report("nodes", 500)
    assert terminal.getvalue() == ""
    now[0] = 1.0
    for one in (shown, hidden):
        one.report("nodes", 1000)
        one.end()
    assert terminal.getvalue() == "\r\x1b[Knodes: 1000 read\r\x1b[K"
    assert pipe.getvalue() == ""
