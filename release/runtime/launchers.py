"""The scripts that start the runtime's interpreter by its own loader: one that stands for it, and one a program."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from release.members import Member

INTERPRETER = "python/bin/python3.11"
# What `sys.executable` names: a program that calls itself through it gets the same C library.
PYTHON = "python/bin/python3"
LOADERS = {"amd64": "lib/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}
# The unit of the shim sets PYTHONMALLOC, which -I would ignore.
_FLAGS = {"mooring-cri-shim": "-s -P"}
_HEAD = """\
#!/bin/sh
# Starts {name} by the runtime's own loader and C library. It sets nothing that a child process would inherit.
self=$0
case $self in */*) ;; *) self=./$self ;; esac
while [ -L "$self" ]; do
  target=$(readlink "$self")
  case $target in
    /*) self=$target ;;
    *) self=${{self%/*}}/$target ;;
  esac
done
top=$(cd -P "${{self%/*}}/{up}" && pwd -P) || exit 127
exec "$top/{loader}" --inhibit-cache --library-path "$top/lib" --argv0 "$top/{python}" "$top/{interpreter}" {words}"$@"
"""


def launchers(repository: Path, arch: str, programs: Sequence[str]) -> dict[str, Member]:
    """Return the launchers of programs, which are among the project's scripts, and of the interpreter."""
    scripts = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    texts = {PYTHON: _text(arch, "Python", "../..")}
    for program in programs:
        module, _, function = str(scripts[program]).partition(":")
        flags = _FLAGS.get(program, "-I")
        texts[f"bin/{program}"] = _text(
            arch, program, "..", f"{flags} -c 'import sys; from {module} import {function}; sys.exit({function}())' "
        )
    return {path: Member(text.encode(), 0o755) for path, text in texts.items()}


def _text(arch: str, name: str, up: str, words: str = "") -> str:
    return _HEAD.format(name=name, up=up, loader=LOADERS[arch], python=PYTHON, interpreter=INTERPRETER, words=words)
