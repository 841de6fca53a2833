"""What the chart's values change in the manifests' objects: by object and path, as text of the templates."""

from collections.abc import Mapping

from devcluster.release.chart.kustomize import Document
from devcluster.release.chart.merge import Path, Settings

Name = tuple[str, str]  # Kind and name of an object.
SCHEDULER: Name = ("Deployment", "mooring-scheduler")
ADVERTISER: Name = ("DaemonSet", "mooring-advertiser")
_POD = ("spec", "template", "spec")


def _block(value: str) -> str:
    """Return a field whose value the chart's user gives as a whole."""
    return f"{{{{- toYaml .Values.{value} | nindent @2@ }}}}"


def _optional(field: str, value: str) -> str:
    """Return a field that is there only where the value is not empty."""
    return f"{{{{- with .Values.{value} }}}}\n{field}:\n  {{{{- toYaml . | nindent @2@ }}}}\n{{{{- end }}}}"


def _arguments(program: str) -> str:
    return f"{{{{- range .Values.{program}.extraArgs }}}}\n- {{{{ . | quote }}}}\n{{{{- end }}}}"


def _container(program: str, name: str, kind: str = "containers") -> Mapping[Path, str]:
    there = (*_POD, kind, name)
    return {
        (*there, "image"): f'{{{{ include "mooring.image" (list . .Values.{program}.image) | quote }}}}',
        (*there, "imagePullPolicy"): "{{ .Values.image.pullPolicy }}",
        (*there, "resources"): _block(f"{program}.resources"),
    }


def _pod(program: str) -> Mapping[Path, str]:
    return {
        (*_POD, "priorityClassName"): f"{{{{ .Values.{program}.priorityClassName | quote }}}}",
        (*_POD, "tolerations"): _block(f"{program}.tolerations"),
    }


_REPLACED: Mapping[Name, Mapping[Path, str]] = {
    SCHEDULER: {
        ("spec", "replicas"): "{{ .Values.scheduler.replicas }}",
        **_pod("scheduler"),
        (*_POD, "affinity"): _block("scheduler.affinity"),
        **_container("scheduler", "scheduler"),
        (*_POD, "volumes", "extender-tls", "secret", "secretName"): "{{ .Values.extender.tls.secretName | quote }}",
        (*_POD, "volumes", "signing-key", "secret", "secretName"): "{{ .Values.signatures.secretName | quote }}",
    },
    ADVERTISER: {
        **_pod("advertiser"),
        (*_POD, "nodeSelector"): _block("advertiser.nodeSelector"),
        **_container("advertiser", "init", "initContainers"),
        **_container("advertiser", "advertiser"),
    },
    ("NetworkPolicy", "mooring-extender"): {
        ("spec", "ingress", "[1]", "from"): "\n  {{- range .Values.extender.allowedCidrs }}\n  - ipBlock:\n"
        "      cidr: {{ . | quote }}\n  {{- end }}",
    },
}
_SHARED = "{{- with .Values.image.pullSecrets }}\nimagePullSecrets:\n  {{- toYaml . | nindent @2@ }}\n{{- end }}"
_ADDED: Mapping[Name, Mapping[Path, str]] = {
    SCHEDULER: {
        (*_POD, "containers", "scheduler", "args"): _arguments("scheduler"),
        _POD: f"{_optional('nodeSelector', 'scheduler.nodeSelector')}\n{_SHARED}",
        ("spec", "template", "metadata"): _optional("annotations", "scheduler.podAnnotations"),
    },
    ADVERTISER: {
        (*_POD, "containers", "advertiser", "args"): _arguments("advertiser"),
        (*_POD, "initContainers", "init", "securityContext"): _optional(
            "seLinuxOptions", "advertiser.init.seLinuxOptions"
        ),
        _POD: _SHARED,
        ("spec", "template", "metadata"): _optional("annotations", "advertiser.podAnnotations"),
    },
    ("ConfigMap", "mooring-guard"): {
        ("data",): '{{- with .Values.guard.inventoryWriters }}\ninventoryWriters: {{ join " " . | quote }}\n{{- end }}'
    },
}
_CONDITIONS: Mapping[Name, Mapping[Path, str]] = {
    ADVERTISER: {(*_POD, "initContainers"): ".Values.advertiser.init.enabled"},
}


def settings_of(name: Name) -> Settings:
    """Return what values change in one object."""
    return Settings(_REPLACED.get(name, {}), _ADDED.get(name, {}), _CONDITIONS.get(name, {}))


def unused(objects: Mapping[Name, Document]) -> list[str]:
    """Return the settings whose object or path the manifests do not have (any more)."""
    named = [
        (name, path) for table in (_REPLACED, _ADDED, _CONDITIONS) for name, paths in table.items() for path in paths
    ]
    return [f"{name[0]} {name[1]}: {'.'.join(path)}" for name, path in named if not _has(objects.get(name), path)]


def _has(value: object, path: Path) -> bool:
    if not path:
        return value is not None
    step, *rest = path
    if isinstance(value, list):
        places = {f"[{number}]": one for number, one in enumerate(value)}
        value = places | {one["name"]: one for one in value if isinstance(one, dict) and "name" in one}
    return isinstance(value, dict) and _has(value.get(step), tuple(rest))
