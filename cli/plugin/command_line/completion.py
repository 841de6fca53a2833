"""What may stand in the place of the last word of a command line: words, names of objects, or files.

kubectl completes the words after `kubectl mooring` by running `kubectl_complete-mooring` with them, the unfinished one
last. It prints one candidate a line, with a tab before its description, and last a directive of cobra. Sources:
pkg/cmd/plugin/plugin_completion.go of kubectl, and ShellCompDirective in completions.go of cobra.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cli.plugin.command_line.flag_values import FORMATS, REPORT_FORMATS, report_output
from cli.plugin.command_line.flags import Parsers

# Cobra's directives: file names may follow, or may not.
_FILES, _NO_FILES = 0, 4
# The kinds of objects whose names a flag or an argument takes, by its name.
_OF_FLAGS = {"namespace": "namespace", "context": "context", "nodes": "node"}
_OF_ARGUMENTS = {"nodes": "node", "gpus": "node", "pods": "pod", "groups": "group", "when": "group"}
_SUBJECTS = ("pod", "group", "job")
_OF_FILES = ("kubeconfig", "files")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Words with their descriptions; the names of ``kind`` belong to them too, each after ``prefix``."""

    words: Sequence[tuple[str, str]] = ()
    kind: str = ""
    prefix: str = ""
    files: bool = False


@dataclass(slots=True)
class _Line:
    """A command line before its last word: its command, the values of its flags, and the flag that lacks one."""

    parser: argparse.ArgumentParser
    command: str = ""
    values: dict[str, str] = field(default_factory=dict)
    open_flag: argparse.Action | None = None
    arguments: list[str] = field(default_factory=list)


def read_flags(parsers: Parsers, words: Sequence[str]) -> Mapping[str, str]:
    """Return the values of the flags before the last word, by their names."""
    return _read(parsers, words).values


def candidates(parsers: Parsers, words: Sequence[str]) -> Candidates:
    """Return what the last of these words may be."""
    line, last = _read(parsers, words), words[-1] if words else ""
    if line.open_flag is not None:
        return _value(line.open_flag)
    flag, separator, _ = last.partition("=")
    if separator and (action := _flags(line.parser).get(flag)) is not None:
        found = _value(action)
        return Candidates([(f"{flag}={word}", about) for word, about in found.words], found.kind, f"{flag}=")
    if last.startswith("-"):
        listed = {id(flag): flag for flag in _flags(line.parser).values()}.values()
        return Candidates([(text, _about(flag)) for flag in listed for text in flag.option_strings])
    if not line.command:
        return Candidates(list(_commands(parsers)))
    return _argument(line, last)


def lines(found: Candidates, names: Sequence[str], last: str) -> Iterator[str]:
    """Yield the lines that kubectl reads: those that begin with the last word, and a directive."""
    words = [*found.words, *((f"{found.prefix}{name}", "") for name in names)]
    for word, about in words:
        if word.startswith(last):
            yield f"{word}\t{about}" if about else word
    yield f":{_FILES if found.files else _NO_FILES}"


def _read(parsers: Parsers, words: Sequence[str]) -> _Line:
    line = _Line(parsers.root)
    for word in words[:-1]:
        flag, separator, value = word.partition("=")
        action = _flags(line.parser).get(flag)
        if line.open_flag is not None:
            line.values[line.open_flag.dest], line.open_flag = word, None
        elif action is not None and separator:
            line.values[action.dest] = value
        elif action is not None and action.nargs != 0:
            line.open_flag = action
        elif action is None and not word.startswith("-"):
            if line.command:
                line.arguments.append(word)
            elif word in parsers.commands:
                line.command, line.parser = word, parsers.commands[word]
    return line


def _flags(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    return {text: action for action in parser._actions for text in action.option_strings}


def _commands(parsers: Parsers) -> Iterator[tuple[str, str]]:
    for name, parser in parsers.commands.items():
        yield name, parser.description or ""


def _about(action: argparse.Action) -> str:
    return (action.help or "").partition("\n")[0]


def _value(action: argparse.Action) -> Candidates:
    if action.dest == "output":
        formats = REPORT_FORMATS if action.type is report_output else FORMATS
        return Candidates([(form if form != "jsonpath" else "jsonpath=", "") for form in formats])
    if action.choices is not None:
        return Candidates([(str(choice), "") for choice in action.choices])
    return Candidates(kind=_OF_FLAGS.get(action.dest, ""), files=action.dest in _OF_FILES)


def _argument(line: _Line, last: str) -> Candidates:
    """Return what an argument of a command may be."""
    positional = next((action for action in line.parser._actions if not action.option_strings), None)
    if positional is None or (line.arguments and positional.nargs != "*"):
        return Candidates()
    if positional.dest == "subject":
        prefix = last.rpartition("/")[0]
        if prefix in _SUBJECTS:
            return Candidates(kind=prefix, prefix=f"{prefix}/")
        return Candidates([(f"{kind}/", "") for kind in _SUBJECTS], kind="pod")
    if positional.choices is not None:
        return Candidates([(str(choice), "") for choice in positional.choices])
    kind = "node" if positional.dest == "node" else _OF_ARGUMENTS.get(line.command, "")
    return Candidates(kind=kind, files=positional.dest in _OF_FILES)
