"""Remove from objects and texts what may be secret. Pure.

Two rules, one behind the other: fields that can hold anything are removed whatever they hold, and from every text that
is left what looks like a credential.
"""

import re
from collections.abc import Mapping
from typing import Any

from mooring import names

REMOVED = "(removed)"
# Fields without a use here: they repeat others, hold anything, or hold secrets by their meaning.
_DROPPED = frozenset({
    "managedFields", "data", "stringData", "binaryData", "httpHeaders", "volumeAttributes", "options", "parameters",
    "images",
})  # fmt: skip
_COMMANDS = frozenset({"command", "args"})
# Annotations that are kept are read by Mooring or by the rules of Kubernetes that its scheduler has. The most frequent
# other one is last-applied-configuration, which repeats a whole object with all of its environment.
_KEPT_ANNOTATIONS = (
    "mooring.dev/", names.RIT_REQUEST, "k8s.v1.cni.cncf.io/", "batch.kubernetes.io/", "apps.kubernetes.io/",
    "jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "scheduling.k8s.io/",
    "scheduling.x-k8s.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "pv.kubernetes.io/",
    "storage.alpha.kubernetes.io/", "kubernetes.io/config.", "deployment.kubernetes.io/", "deprecated.daemonset.",
)  # fmt: skip
_SECRET = r"(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|credentials?)"
_FLAG = re.compile(rf"--?[\w.-]*{_SECRET}[\w.-]*", re.IGNORECASE)
# Each with what replaces it.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REMOVED),
    (re.compile(r"\b(authorization[\"']?\s*[:=]\s*[\"']?)(?:\w+\s+)?[^\s\"',;]+", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(r"\b(bearer\s+)[\w.~+/=-]{16,}", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(r"://[^/\s:@\"']+:[^/\s@\"']+@"), f"://{REMOVED}@"),
    (
        re.compile(rf"({_SECRET}[\w.-]{{0,64}}\\?[\"']?\s{{0,8}}[:=]\s{{0,8}}\\?[\"']?)[^\s\"',;\\]+", re.IGNORECASE),
        rf"\1{REMOVED}",
    ),
    (re.compile(rf"(--[\w.-]{{0,64}}{_SECRET}[\w.-]{{0,64}}\s+)[^\s\"',;]+", re.IGNORECASE), rf"\1{REMOVED}"),
    # Tokens of AWS, GitHub, GitLab, Slack and of kubeadm's bootstrap.
    (re.compile(r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,})"), REMOVED),
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), REMOVED),
)  # fmt: skip


# Every pattern needs one of these: most texts of an object have none.
_SUSPECT = re.compile(
    rf"{_SECRET}|authorization|bearer|PRIVATE KEY|eyJ|://[^/]+@|AKIA|gh[pousr]_|glpat-|xox[abprs]-|[a-z0-9]\.[a-z0-9]{{16}}",
    re.IGNORECASE,
)


def redact_text(text: str) -> str:
    """Return a text, such as a log, without what looks like a credential."""
    if _SUSPECT.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_object(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of the API, or a part of one, without secrets."""
    is_ours = _is_ours(document.get("command"))
    return {key: _field(key, value, is_ours) for key, value in document.items() if key not in _DROPPED}


def _is_ours(command: Any) -> bool:
    """Return whether a container runs a program of Mooring: its command line has no secrets."""
    return isinstance(command, list) and bool(command) and str(command[0]).startswith("mooring-")


def _field(key: str, value: Any, is_ours: bool) -> Any:
    if key in _COMMANDS and isinstance(value, list):
        return _arguments(value) if is_ours else [REMOVED]
    if key == "env" and isinstance(value, list):
        return [_variable(one) for one in value]
    if key == "terminated" and isinstance(value, Mapping):
        # What a container has left as its last words is a log of any program.
        value = {name: REMOVED if name == "message" else one for name, one in value.items()}
    if key == "annotations" and isinstance(value, Mapping):
        return {name: _annotation(name, text) for name, text in value.items()}
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_object(value)
    if isinstance(value, list):
        return [_value(one) for one in value]
    return redact_text(value) if isinstance(value, str) else value


def _arguments(arguments: list[Any]) -> list[Any]:
    """Return a command line; the argument after a flag such as `--token` is its value."""
    shown: list[Any] = []
    for argument in arguments:
        is_value = bool(shown) and isinstance(shown[-1], str) and _FLAG.fullmatch(shown[-1]) is not None
        shown.append(REMOVED if is_value else _value(argument))
    return shown


def _variable(variable: Any) -> Any:
    """Return a variable of the environment with its name and where its value is from, without the value."""
    if not isinstance(variable, Mapping):
        return REMOVED
    return {key: REMOVED if key == "value" else _value(value) for key, value in variable.items()}


def _annotation(name: str, text: Any) -> Any:
    return _value(text) if name.startswith(_KEPT_ANNOTATIONS) else REMOVED
