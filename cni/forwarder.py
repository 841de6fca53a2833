"""Write the executable that CNI runs: it hands each call to the warm server, or does it itself where none answers.

A Python start costs more than a CNI call's own work, so the text below imports built-in modules only and is started with
``-I -S -E`` (no site, no environment). It sends the CNI_* variables and stdin, prints the answer and leaves with its
status. Without a whole answer it executes the one-shot command with the same stdin and environment: what a server left
half done is undone there first, so it does not matter how far that one came.

The request on the socket: two lengths in decimal, each ended by a newline, then that many bytes of ``NAME=value`` joined
by zero bytes, then that many bytes of stdin. The answer: exit status and length, each ended by a newline, then stdout.
"""

from collections.abc import Sequence

_INTERPRETER = "/usr/bin/python3"
_TEXT = """\
#!{interpreter} -ISE
# Written by mooring-cni at installation. It hands a CNI call to the server at SOCKET, or runs FALLBACK instead.
import _socket
import posix
import sys

SOCKET = {socket!r}
FALLBACK = {fallback!r}


def read(descriptor):
    parts = []
    while part := posix.read(descriptor, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def write(descriptor, data):
    while data:
        data = data[posix.write(descriptor, data):]


def ask(stdin):
    variables = b"\\0".join(k + b"=" + v for k, v in posix.environ.items() if k.startswith(b"CNI_"))
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect(SOCKET)
    server.sendall(b"%d\\n%d\\n" % (len(variables), len(stdin)) + variables + stdin)
    status, length, stdout = read(server.fileno()).split(b"\\n", 2)
    if len(stdout) != int(length):
        raise ValueError("the answer is cut short")
    return int(status), stdout


stdin = read(0)
try:
    status, stdout = ask(stdin)
except (OSError, ValueError):
    again = posix.memfd_create("stdin", 0)
    write(again, stdin)
    posix.lseek(again, 0, 0)
    posix.dup2(again, 0)
    posix.execve(FALLBACK[0], FALLBACK, posix.environ)
write(1, stdout)
posix._exit(status)
"""


def render(socket: str, fallback: Sequence[str], interpreter: str = _INTERPRETER) -> str:
    """Return the text of the executable; ``fallback`` is an absolute path and its arguments."""
    return _TEXT.format(interpreter=interpreter, socket=socket, fallback=list(fallback))
