"""The Helm chart as helm renders it, beside what kustomize makes of the same choices."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import yaml

from release.cache import helm
from tests.manifests.kustomize import MANIFESTS, render
from tests.manifests.rendering import Document

CHART = MANIFESTS / "helm/mooring"

# The chart's value that stands for each component.
SWITCHES: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "extender": {"extender": {"enabled": True}},
    "extender-tls": {"extender": {"enabled": True, "tls": {"enabled": True}}},
    "node-installer": {"nodeInstaller": {"enabled": True}},
    "selinux": {"advertiser": {"seLinuxOptions": {"type": "spc_t"}}},
    "control-plane": {"scheduler": {"controlPlaneOnly": True}},
    "signatures": {"signatures": {"enabled": True}},
    "gpus": {"gpus": {"enabled": True}},
    "network-status": {"networkStatus": {"enabled": True}},
    "rates": {"rates": {"enabled": True}},
    "limits": {"limits": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
}
# The namespace is an object of the kustomizations.
_ALIKE = {"createNamespace": True}
_MANAGED_BY = "app.kubernetes.io/managed-by"
Objects = Mapping[tuple[str, str], Document]


def run(
    values: Mapping[str, Any] | None = None, *flags: str, namespace: str = "mooring-system", kubernetes: str = "1.36.0"
) -> "subprocess.CompletedProcess[str]":
    """Run `helm template`; a person's own configuration of helm is not read."""
    command = ["template", "mooring", str(CHART), "--namespace", namespace, "--kube-version", kubernetes, *flags]
    text = yaml.safe_dump({**_ALIKE, **(values or {})})
    return subprocess.run(
        [str(helm(os.environ)), *command, "--values", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def rendered(values: Mapping[str, Any] | None = None, *flags: str, namespace: str = "mooring-system") -> Objects:
    """Return the objects that helm makes, by kind and name."""
    done = run(values, *flags, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return _by_name(yaml.safe_load_all(done.stdout))


def refusal(values: Mapping[str, Any], kubernetes: str = "1.36.0") -> str:
    """Return why helm refuses values."""
    done = run(values, kubernetes=kubernetes)
    assert done.returncode != 0, done.stdout
    return done.stderr


def kustomized(components: Iterable[str] = (), more: Document | None = None, **files: str) -> Objects:
    """Return the objects that kustomize makes, as helm's; they differ in who is said to manage them alone."""
    named = {name.replace("_", "."): text for name, text in files.items()}
    return _by_name(map(_managed_by_helm, render(tuple(components), more, named)))


def _managed_by_helm(part: Any) -> Any:
    if isinstance(part, list):
        return [_managed_by_helm(one) for one in part]
    if not isinstance(part, dict):
        return part
    own = {_MANAGED_BY: "Helm"} if part.get(_MANAGED_BY) == "kustomize" else {}
    return {key: _managed_by_helm(one) for key, one in part.items()} | own


def _by_name(documents: Iterable[Any]) -> Objects:
    found = [one for one in documents if one]
    by_name = {(str(one["kind"]), str(one["metadata"]["name"])): one for one in found}
    assert len(by_name) == len(found), "an object is there twice"
    return by_name


def merged(components: Iterable[str]) -> dict[str, Any]:
    """Return the values that switch components on."""
    values: dict[str, Any] = {}
    for component in components:
        for name, value in SWITCHES[component].items():
            values[name] = {**values.get(name, {}), **value}
    return values


@cache
def plain() -> Objects:
    """Return what helm makes of the values as they are."""
    return rendered()
