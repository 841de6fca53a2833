"""`kubectl mooring ui` as a person runs it: its address, until Ctrl-C."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from yarl import URL

from tests.cli.plugin.cluster import Served
from tests.cli.plugin.test_watch import line, watching


@dataclass(frozen=True, slots=True)
class Interface:
    """The address that was printed, and the secret in it."""

    url: URL

    @property
    def token(self) -> str:
        return self.url.fragment.removeprefix("token=")


@asynccontextmanager
async def interface(served: Served) -> AsyncIterator[Interface]:
    """Run it; it ends with Ctrl-C, having printed nothing else."""
    async with watching(served, "ui") as process:
        word, address = (await line(process)).split()
        assert word == "open"
        assert process.stderr is not None
        assert await process.stderr.readline() == b"Ctrl-C ends it\n"
        yield Interface(URL(address))
