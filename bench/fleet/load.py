"""Pods with VFs that come and go on the hosts with containerd while a stage runs."""

import threading
from collections.abc import Collection, Mapping
from itertools import count
from random import Random
from types import TracebackType

from bench.fleet.containerd import ContainerdHost


class Load:
    """One pod after the other, on a random host except those ``without``; a failure is raised at the end of the block.

    Without hosts there is no load.
    """

    def __init__(self, hosts: Mapping[str, ContainerdHost], without: Collection[str], seed: float) -> None:
        self._hosts = [host for name, host in sorted(hosts.items()) if name not in without]
        self._random = Random(seed)
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load", daemon=True)
        self._failure: BaseException | None = None
        self._pods = 0

    def report(self) -> str:
        return f"; {self._pods} pods with VFs came and went" if self._hosts else ""

    def __enter__(self) -> "Load":
        if self._hosts:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, where: TracebackType | None
    ) -> None:
        self._has_ended.set()
        if self._hosts and failure is None:
            self._thread.join()
            if self._failure is not None:
                raise self._failure

    def _work(self) -> None:
        try:
            for number in count():
                if self._has_ended.is_set():
                    return
                host, name = self._random.choice(self._hosts), f"load-{threading.get_ident()}-{number}"
                host.add_pod(name)
                host.await_pod(name)
                host.delete_pod(name)
                self._pods += 1
        except (AssertionError, OSError, KeyError) as failed:
            self._failure = failed
