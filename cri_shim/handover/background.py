"""Continue in the background once the program serves, because systemd waits for the end of the ExecReload= command."""

import os
from collections.abc import Callable
from contextlib import suppress

Run = Callable[[Callable[[], None]], int]


def in_background(run: Run) -> int:
    """Run ``run`` in a background process that is a child of process 1.

    In this process, return 0 once ``run`` calls its argument, or 1 if it ends first. In the background process, return
    the result of ``run``. systemd learns of the end of a main process by SIGCHLD, so the process must be systemd's
    child before it is announced (MAINPID=); the process in between exits at once. The caller must not have threads.
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
        # The waiting process may have been killed. This process still owns the socket.
        with suppress(BrokenPipeError):
            os.write(tell, b"1")
        os.close(tell)

    return run(ready)
