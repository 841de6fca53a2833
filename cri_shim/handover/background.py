"""Go on in the background once the program serves: systemd awaits the end of what ExecReload= starts."""

import os
from collections.abc import Callable
from contextlib import suppress

Run = Callable[[Callable[[], None]], int]


def in_background(run: Run) -> int:
    """Run ``run`` in a process that is a child of process 1; return 0 here once that calls its argument, 1 if it ends.

    In that process return what ``run`` returns. systemd learns of a main process' end by SIGCHLD, so that must be its
    child before it is made known (MAINPID=): the process in between ends at once. The caller has no threads.
    """
    told, tell = os.pipe()
    if between := os.fork():
        os.close(tell)
        os.waitpid(between, 0)
        with os.fdopen(told, "rb") as pipe:
            return 0 if pipe.read(1) else 1
    os.close(told)
    if os.fork():
        os._exit(0)

    def ready() -> None:
        # Whoever waits may have been killed; this process is in charge nonetheless.
        with suppress(BrokenPipeError):
            os.write(tell, b"1")
        os.close(tell)

    return run(ready)
