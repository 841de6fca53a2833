"""Read the YAML of one kubeconfig file, which may come from anyone."""

from pathlib import Path
from typing import Any

from mooring.bounded_yaml import YamlError, load
from mooring.kube.kubeconfig.errors import KubeconfigError

_MOST_BYTES = 4 << 20


def load_file(file: Path) -> Any:
    """Return the file's only document; raise KubeconfigError or OSError. The file may be a pipe."""
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise KubeconfigError(f"{file} is longer than {_MOST_BYTES} bytes")
    try:
        return load(content.decode())
    except (UnicodeDecodeError, YamlError) as error:
        raise KubeconfigError(f"{file} is not YAML: {error}") from error
