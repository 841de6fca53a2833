"""Execute a Containerfile without a container engine: its own instructions, in folders, by chroot.

A stage is a folder with a configuration. Its files are hard links to those that it starts from, for a step adds files
and replaces them, and writes into none. Supported are the instructions and forms that the repository's Containerfile
uses; any other is an error, so that nothing of it is silently skipped.
"""

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_ARGUMENT = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as it is after its last instruction so far."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: tuple[str, ...] = ()

    @property
    def process(self) -> dict[str, object]:
        """Return its configuration as an image has it (image-spec 1.0, config.md)."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return {"Env": variables, "User": self.user, "Entrypoint": list(self.entrypoint)}


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction's word and the rest of its line."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def build(
    text: str,
    context: Path,
    bases: Mapping[str, Path],
    folder: Path,
    target: str | None = None,
    environment: Mapping[str, str] = _NOTHING,
) -> Mapping[str, Stage]:
    """Build stages below ``folder``: all, or those that ``target`` needs.

    ``bases`` are the root folders that stand for the images named, ``environment`` is what commands see beside the
    image's own.
    """
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    name, wanted = "", _needed(text, target)
    for word, rest in instructions(text):
        if word == "ARG":
            arguments |= dict([rest.split("=", 1)])
            continue
        if word == "FROM":
            image, _, name = _filled(rest, arguments).partition(" AS ")
            if name in wanted:
                stages[name] = _begun(stages.get(image), bases.get(image), folder / name)
        elif name in wanted:
            stages[name] = _done(word, rest, stages[name], context, stages, environment)
    return stages


def _needed(text: str, target: str | None) -> set[str]:
    """Return the names of the stages that a target starts from or copies from, itself included."""
    sources: dict[str, set[str]] = {}
    name = ""
    for word, rest in instructions(text):
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            sources[name] = {image}
        elif word == "COPY" and rest.startswith("--from="):
            sources[name].add(rest.split()[0].removeprefix("--from="))
    if target is None:
        return set(sources)
    if target not in sources:
        raise ValueError(f"stage {target!r} is none of {', '.join(sources)}")
    found, left = set[str](), {target}
    while left:
        found |= left
        left = {source for one in left for source in sources[one] if source in sources} - found
    return found


def _filled(text: str, arguments: Mapping[str, str]) -> str:
    return _ARGUMENT.sub(lambda match: arguments[match[1]], text)


def _begun(stage: Stage | None, base: Path | None, root: Path) -> Stage:
    start = stage or Stage(base or Path("no such base"), {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    subprocess.run(["cp", "--archive", "--link", str(start.root), str(root)], check=True)
    return replace(start, root=root)


def _done(
    word: str, rest: str, stage: Stage, context: Path, stages: Mapping[str, Stage], environment: Mapping[str, str]
) -> Stage:
    match word:
        case "COPY":
            _copy(shlex.split(rest), stage.root, context, stages)
        case "RUN":
            _run(rest, stage, environment)
        case "ENV":
            return replace(
                stage, environment={**stage.environment, **dict(each.split("=", 1) for each in shlex.split(rest))}
            )
        case "USER":
            return replace(stage, user=rest)
        case "ENTRYPOINT":
            return replace(stage, entrypoint=tuple(json.loads(rest)))
        case _:
            raise ValueError(f"instruction {word!r} is not known here")
    return stage


def _copy(words: list[str], root: Path, context: Path, stages: Mapping[str, Stage]) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].root
    what, where = words
    shutil.copytree(
        source / what.lstrip("/"), root / where.lstrip("/"), symlinks=True, copy_function=_link, dirs_exist_ok=True
    )


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as apart:
        if apart.errno != errno.EXDEV:
            raise
        shutil.copy2(source, target)


def _run(command: str, stage: Stage, environment: Mapping[str, str]) -> None:
    enter = ["unshare", "--mount", "--net", "/usr/sbin/chroot", str(stage.root), "/bin/sh", "-c", command]
    done = subprocess.run(enter, env={**environment, **stage.environment}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"RUN {command!r} ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
