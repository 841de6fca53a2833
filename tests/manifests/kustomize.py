"""The manifests as kubectl's kustomize makes them: the base, and the base with components."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"
# As an overlay has to list them: extender-tls replaces volumes, which signatures adds to.
COMPONENTS = (
    *("extender", "extender-tls", "signatures", "gpus", "network-status", "rates", "limits", "monitoring"),
    "node-installer",
    "control-plane",
    "selinux",
)
Document = dict[str, Any]
_RENDER_S = 180


def render(
    components: Sequence[str] = (), more: Document | None = None, files: dict[str, str] | None = None
) -> tuple[Document, ...]:
    """Return the objects of an overlay with these components, in the order in which kustomize lists them.

    ``more`` are further fields of the overlay, ``files`` texts that lie beside it.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (files or {}).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [_relative(folder, "base")],
            "components": [_relative(folder, f"components/{name}") for name in COMPONENTS if name in components],
            **(more or {}),
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
        done = subprocess.run(
            ["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=_RENDER_S
        )
    if done.returncode != 0:
        raise RuntimeError(f"kubectl kustomize ended with {done.returncode}: {done.stderr.strip()}")
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def _relative(folder: str, path: str) -> str:
    # kustomize wants no absolute path.
    return f"{'../' * len(Path(folder).resolve().parts[1:])}{str(MANIFESTS / path).lstrip('/')}"
