"""The manifests as kubectl's kustomize makes them, and as they lie there."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent / "manifests"
Document = dict[str, Any]


@cache
def built(folder: str) -> tuple[Document, ...]:
    """Return the objects of a kustomization below manifests/."""
    command = ["kubectl", "kustomize", str(ROOT / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def raw(path: str) -> list[Document]:
    """Return the objects of one file."""
    return [document for document in yaml.safe_load_all((ROOT / path).read_text()) if document]


def kustomizations() -> list[str]:
    """Return every folder that is built by itself: the base, and each overlay."""
    return ["base", *sorted(f"overlays/{path.name}" for path in (ROOT / "overlays").iterdir())]


def of_kind(documents: tuple[Document, ...], *kinds: str) -> Iterator[Document]:
    """Yield the objects of these kinds."""
    return (document for document in documents if document["kind"] in kinds)
