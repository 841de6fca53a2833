"""Determine what systemd starts for a service, from its unit, drop-ins and environment files, as systemd reads them.

Sources: systemd.unit(5) for folders and drop-ins, systemd.syntax(7) for lines, systemd.service(5) "COMMAND LINES" and
replace_env_argv in src/basic/env-util.c for variables, systemd.exec(5) and src/basic/env-file.c for environment files.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cli.node.plan.states import Host

# A file in an earlier folder replaces a file of the same name in later ones. Folders of `systemctl set-property` and of
# transient units are missing, because files there set no command.
FOLDERS = (
    *("/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator"),
    *("/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"),
)
_SPACES, _QUOTES = " \t\r\n", ("'", '"')
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_FOLDERS_OF_SPECIFIERS = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "h": "/root"}
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$\$")


@dataclass(frozen=True, slots=True)
class Service:
    """The command of a service with its variables replaced, its environment, and its files.

    ``files`` are in the order in which systemd reads them: the unit, its drop-ins, the environment files.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    files: tuple[str, ...]


def unit_files(host: Host, name: str) -> list[str]:
    """Return a unit's file, if it exists, and its drop-ins ordered by name."""
    unit = next((path for folder in FOLDERS if host.text(path := f"{folder}/{name}") is not None), None)
    drop_ins: dict[str, str] = {}
    for folder in (f"{folder}/{of}.d" for of in (name, "service") for folder in FOLDERS):
        for file in host.below(folder):
            if file.endswith(".conf"):
                drop_ins.setdefault(file, f"{folder}/{file}")
    return [*([unit] if unit else []), *(drop_ins[file] for file in sorted(drop_ins, key=str.encode))]


def environment_files(host: Host, name: str, assumed: str = "") -> list[str]:
    """Return the paths of a unit's environment files, including missing ones; the last part may be a pattern."""
    return [path.removeprefix("-") for path in _settings(host, name, assumed)["EnvironmentFile"]]


def read_service(host: Host, name: str, assumed: str = "") -> Service | None:
    """Return what a unit starts, None without a command; ``assumed`` is the unit's text if it has no file."""
    found = _settings(host, name, assumed)
    if not found["ExecStart"]:
        return None
    environment = dict(_assignment(word) for line in found["Environment"] for word in split_words(line) if "=" in word)
    files = [path for pattern in environment_files(host, name, assumed) for path in _matching(host, pattern)]
    for path in files:
        environment |= read_environment(host.text(path) or "")
    return Service(_command(found["ExecStart"][-1], environment), environment, (*unit_files(host, name), *files))


def read_environment(text: str) -> dict[str, str]:
    """Return the variables that an environment file sets."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        if text[at] in _SPACES:
            at += 1
        elif text[at] in "#;" or "=" not in (line := text[at:].partition("\n")[0]):
            at += len(text[at:].partition("\n")[0])
        else:
            key = line.partition("=")[0]
            value, at = _value(text, at + len(key) + 1)
            found[key.strip()] = value
    return found


def split_words(text: str, *, escapes: bool = True) -> list[str]:
    """Return the words of a line as systemd splits them; ``escapes`` decodes C escapes (``\\n``, ``\\x20``)."""
    words: list[str] = []
    word, quote, at = "", "", 0
    begun = False
    while at < len(text):
        letter = text[at]
        if letter == "\\" and at + 1 < len(text):
            taken, at = _unescaped(text, at + 1) if escapes else (text[at + 1], at + 2)
            word, begun = word + taken, True
            continue
        if letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote, begun = letter, True
        elif not quote and letter in _SPACES:
            words += [word] if begun else []
            word, begun = "", False
        else:
            word, begun = word + letter, True
        at += 1
    return [*words, *([word] if begun else [])]


def _settings(host: Host, name: str, assumed: str) -> dict[str, list[str]]:
    """Return the values of the list settings that are used here; an empty assignment clears a list."""
    found: dict[str, list[str]] = {"ExecStart": [], "Environment": [], "EnvironmentFile": []}
    files = unit_files(host, name)
    has_unit = bool(files) and posixpath.basename(files[0]) == name
    for text in [*([] if has_unit else [assumed]), *(host.text(path) or "" for path in files)]:
        for key, value in _lines(text):
            if key in found:
                found[key] = [*found[key], _with_specifiers(value, name)] if value else []
    return found


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of the section [Service]; comments may interrupt continued lines."""
    section, open_line = "", ""
    for line in text.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        line = open_line + line.strip() if not open_line else open_line + line.rstrip()
        if line.endswith("\\"):
            open_line = line[:-1] + " "
            continue
        open_line = ""
        if line.startswith("["):
            section = line.strip("[] ")
        key, equals, value = line.partition("=")
        if equals and section == "Service":
            yield key.strip(), value.strip()


def _with_specifiers(value: str, name: str) -> str:
    known = {"%": "%", "n": name, "N": name.rpartition(".")[0], "p": name.rpartition(".")[0], "u": "root", "U": "0"}
    known |= _FOLDERS_OF_SPECIFIERS
    return re.sub(r"%(.)", lambda match: known.get(match[1], match[0]), value)


def _matching(host: Host, pattern: str) -> list[str]:
    folder, name = posixpath.split(pattern)
    if not any(letter in name for letter in "*?["):
        return [pattern] if host.text(pattern) is not None else []
    return [f"{folder}/{file}" for file in host.below(folder) if fnmatchcase(file, name)]


def _assignment(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


def _command(line: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a command; with ``:`` in the prefix of its path, variables are not replaced."""
    bare = line.lstrip("@-:+!|")
    words = split_words(bare)
    if ":" not in line[: len(line) - len(bare)]:
        words = [each for word in words for each in _replaced(word, environment)]
    return (*_in_shell(words, environment),)


def _replaced(word: str, environment: Mapping[str, str]) -> list[str]:
    """Replace variables in a word: ``$A`` alone becomes the words of its value, ``${A}`` its value, ``$$`` a dollar."""
    if word.startswith("$") and not word.startswith(("${", "$$")):
        return split_words(environment.get(word[1:], ""), escapes=False)
    return [_VARIABLE.sub(lambda match: environment.get(match[1], "") if match[1] else "$", word)]


def _in_shell(words: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """Return the words of a shell's ``-c`` command with variables replaced; other commands unchanged."""
    if len(words) < 3 or posixpath.basename(words[0]) not in ("sh", "bash", "dash") or words[1] not in ("-c", "-ec"):
        return words
    text = re.sub(r"\$\{?(\w+)\}?", lambda match: environment.get(match[1], ""), words[2])
    return split_words(text, escapes=False)


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that starts at position ``at`` of an environment file, and the position of its end."""
    value, state, length = "", "before", 0
    while at < len(text):
        letter, at = text[at], at + 1
        if letter == state:
            state = "before"
        elif state in _QUOTES:
            kept = 0 if letter == "\\" and state == '"' and text[at : at + 1] in '"\\`$\n' else 1
            value += letter if kept else text[at : at + 1].replace("\n", "")
            at += 1 - kept
        elif letter in "\r\n":
            break
        elif state == "before" and letter in _QUOTES:
            state = letter
        elif letter == "\\":
            value, at, state = value + text[at : at + 1].replace("\n", ""), at + 1, "bare"
        elif letter in _SPACES:
            value += letter if state == "bare" else ""
            continue
        else:
            value, state = value + letter, "bare"
        length = len(value)
    return value[:length], at


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """Return the character of an escape, and the position of its end."""
    if number := re.compile(r"x([0-9a-fA-F]{2})|([0-3][0-7]{2})").match(text, at):
        return chr(int(number[1], 16) if number[1] else int(number[2], 8)), number.end()
    return _ESCAPES.get(text[at], text[at] if text[at] in "\"'\\ " else f"\\{text[at]}"), at + 1
