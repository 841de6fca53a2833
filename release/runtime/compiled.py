"""Compile Python sources with the runtime's own interpreter, in its build for this machine.

Bytecode is the same on both architectures. It is not checked against its source (PEP 552, unchecked-hash), so times of
files do not matter, and nothing is written into an installed folder.
"""

import hashlib
import pickle
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from release.members import Member
from release.runtime.launchers import INTERPRETER, LOADERS
from release.source import ReleaseError

_TAG = "cpython-311"
# Sources on standard input, bytecode on standard output. A file that does not compile is a template or a test's.
_SCRIPT = """
import importlib.util, marshal, pickle, sys, warnings
warnings.simplefilter("ignore")
head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
compiled = {}
for path, text in pickle.load(sys.stdin.buffer).items():
    try:
        code = compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        continue
    compiled[path] = head + importlib.util.source_hash(text) + marshal.dumps(code)
    del code
pickle.dump(compiled, sys.stdout.buffer)
"""
# A release has several trees of mostly equal sources: each is compiled once a process.
_known: dict[tuple[str, bytes], bytes] = {}


def compiled(members: Mapping[str, Member], interpreter: Mapping[str, Member], arch: str) -> dict[str, Member]:
    """Return the bytecode of members that are Python sources; ``interpreter`` runs on this machine, an ``arch``."""
    sources = {path: member.content for path, member in sorted(members.items()) if path.endswith(".py")}
    keys = {path: (path, hashlib.sha256(text).digest()) for path, text in sources.items()}
    if missing := {path: text for path, text in sources.items() if keys[path] not in _known}:
        fresh = _compile(missing, interpreter, arch)
        _known.update({keys[path]: fresh.get(path, b"") for path in missing})
    return {_bytecode(path): Member(code) for path in sources if (code := _known[keys[path]])}


def _bytecode(path: str) -> str:
    source = PurePosixPath(path)
    return str(source.parent / "__pycache__" / f"{source.stem}.{_TAG}.pyc")


def _compile(sources: Mapping[str, bytes], interpreter: Mapping[str, Member], arch: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="mooring-python-") as folder:
        for name, member in interpreter.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(member.content)
            path.chmod(0o755)
        loader = [f"{folder}/{LOADERS[arch]}", "--inhibit-cache", "--library-path", f"{folder}/lib"]
        command = [*loader, f"{folder}/{INTERPRETER}", "-S", "-s", "-P", "-c", _SCRIPT]
        environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, input=pickle.dumps(dict(sources)), env=environment, capture_output=True, check=False
        )
    if done.returncode != 0:
        raise ReleaseError(f"the runtime's Python ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    found: dict[str, bytes] = pickle.loads(done.stdout)
    return found
