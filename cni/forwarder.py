"""The executable that the runtime starts: as little Python as possible, which forwards the call to the warm server.

A kubelet starts many pods at once, and importing what a call needs costs more than the call itself. The program text
that `render` returns imports builtin modules only. If no server answers, it executes the fallback, which does the same
work in its own process. If a server dies during the call, it returns "try again".

The socket of this node's server is part of the text. It does not come from the network configuration: under Multus a
tenant writes that, and could redirect other pods' calls to a socket in a volume of their own pod.
"""

import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cni.spec.skel import FORWARDER, IN_IPAM, RECURSIVE_CALL

_TEXT = """\
{head}
# Hands a CNI call to the warm server of mooring-cni; written at installation, with the paths of this node.
import posix
import sys

import _socket

SOCKET = {socket!r}
FALLBACK = {fallback!r}
VERSION = {version!r}
AGAIN = '{{"cniVersion":"1.0.0","code":11,"msg":"the mooring-cni server stopped during the call"}}'
AGAIN_BY_IPAM = '{{"cniVersion":"1.0.0","code":7,"msg":"{called_again}"}}'
ABSENT = '{{"cniVersion":"1.0.0","code":11,"msg":"the mooring-cni server does not run, and its executable is missing"}}'


def read(source):
    parts = []
    while part := source(65536):
        parts.append(part)
    return b"".join(parts)


def alone(conf):
    try:
        again = posix.memfd_create("conf")
        while conf:
            conf = conf[posix.write(again, conf) :]
        posix.lseek(again, 0, 0)
        posix.dup2(again, 0)
        posix.execv(FALLBACK[0], FALLBACK)
    except OSError:
        posix.write(1, ABSENT.encode())
    return 1


def main():
    if sys.argv[1:] == ["--version"]:
        posix.write(1, b"mooring-cni " + VERSION.partition(b"=")[2] + b"\\n")
        return 0
    if b"{in_ipam}" in posix.environ:
        posix.write(1, AGAIN_BY_IPAM.encode())
        return 1
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        conf = read(lambda size: posix.read(0, size))
    except OSError:
        conf = b""
    try:
        server.connect(SOCKET)
    except OSError:
        return alone(conf)
    call = [key + b"=" + value for key, value in posix.environ.items() if key.startswith(b"CNI_")]
    call.append(VERSION)
    try:
        call = b"\\0".join(call) + b"\\0\\0" + conf
        server.sendall(call)
        server.shutdown(_socket.SHUT_WR)
        answer = read(server.recv)
    except OSError:
        answer = b""
    if not answer and posix.environ.get(b"CNI_COMMAND") == b"STATUS":
        # STATUS changes nothing, and on an error the runtime reports the node as without a network.
        return alone(conf)
    answer = answer or b"1" + AGAIN.encode()
    posix.write(1, answer[1:])
    return answer[0] - 48


# Nothing is buffered, and the normal exit of the interpreter takes a fifth of the whole time.
posix._exit(main())
"""


# In Python a text without effect; in a shell the command by which Python runs this file.
_SHELL = """\
#!/bin/sh
''':'
exec {command} -ISE "$0" "$@"
'''"""


def render(socket: str, fallback: Sequence[str], python: Sequence[str] = (sys.executable,)) -> str:
    """Return the text of the executable.

    ``socket`` is the path of the server's socket, ``fallback`` the command to execute without a server, ``python`` the
    command of the interpreter that runs the text. The kernel starts only a single word, so a longer one needs a shell.
    """
    version_text = f"{FORWARDER}={version('mooring')}".encode()
    return _TEXT.format(
        head=f"#!{python[0]} -ISE" if len(python) == 1 else _SHELL.format(command=shlex.join(python)),
        socket=socket,
        fallback=list(fallback),
        version=version_text,
        called_again=RECURSIVE_CALL,
        in_ipam=IN_IPAM,
    )


def parse_request(request: bytes) -> tuple[dict[str, str], bytes]:
    """Split a request of the forwarder into the environment (CNI_* and its own version) and standard input."""
    head, _, stdin = request.partition(b"\0\0")
    pairs = (pair.partition(b"=") for pair in head.split(b"\0"))
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}, stdin
