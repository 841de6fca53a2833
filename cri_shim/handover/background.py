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
    read_end, write_end = os.pipe()
    if child := os.fork():
        os.close(write_end)
        os.waitpid(child, 0)
        with os.fdopen(read_end, "rb") as pipe:
            return 0 if pipe.read(1) else 1
    os.close(read_end)
    if os.fork():
        os._exit(0)

    def ready() -> None:
        # The waiting process may have been killed. This process still owns the socket.
        with suppress(BrokenPipeError):
            os.write(write_end, b"1")
        os.close(write_end)

    return run(ready)
