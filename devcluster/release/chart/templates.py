"""The chart's templates: each object of the manifests once, merged from the overlays that have it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import yaml

from devcluster.release.chart.conditions import BASE, TLS, VARIANTS, all_of, condition
from devcluster.release.chart.kustomize import COMPONENTS, Document, render
from devcluster.release.chart.merge import Merge
from devcluster.release.chart.settings import ADVERTISER, SCHEDULER, Name, settings_of, unused

_HEAD = "{{- /* Made from manifests/ by manifests/helm/generate. Change them, and run it again. */ -}}"
_LONGEST = 100_000
_END, _OPENS = "{{- end }}", ("{{- if ", "{{- with ", "{{- range ")
# Objects that the chart's user can leave out, by file: all of the file, or one policy with its binding.
_OF_FILES = {
    "namespace": ".Values.createNamespace",
    "flow": ".Values.flowSchemas.enabled",
    "guard": ".Values.guard.enabled",
}
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def templates() -> dict[str, str]:
    """Return each template's text by its file's name; raise ValueError where a setting has lost its place."""
    variants = {name: _named(render(components)) for name, components in VARIANTS.items()}
    whole = _named(render(COMPONENTS))
    if lost := unused(variants["extender"] | whole):
        raise ValueError(f"settings whose place the manifests do not have: {', '.join(lost)}")
    names = dict.fromkeys(name for objects in variants.values() for name in objects)
    files: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        having = {variant: objects[name] for variant, objects in variants.items() if name in objects}
        files[_file(name, having)].append(_template(name, having, whole.get(name)))
    return {f"{file}.yaml": "\n".join([_HEAD, *_joined(texts), ""]) for file, texts in sorted(files.items())}


def _joined(texts: list[str]) -> Iterator[str]:
    """Yield the lines of all texts; what follows a condition's end under the same condition goes on under it."""
    lines = [line for text in texts for line in text.splitlines()]
    opened: list[str] = []
    dropped = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.strip() == _END and opened.pop() == following:
            dropped = True
            continue
        if line.lstrip().startswith(_OPENS):
            opened.append(line)
        elif line.startswith("{{- else") and opened:
            opened[-1] = line
        if dropped:
            dropped = False
            continue
        yield line


def defaults() -> dict[str, str]:
    """Return what values.yaml takes from the base, by the names that it uses for them."""
    objects = _named(render())
    scheduler, advertiser = objects[SCHEDULER], objects[ADVERTISER]
    pods = {"scheduler": scheduler["spec"]["template"]["spec"], "advertiser": advertiser["spec"]["template"]["spec"]}
    found = {"scheduler_replicas": scheduler["spec"]["replicas"]}
    for program, pod in pods.items():
        found[f"{program}_resources"] = pod["containers"][0]["resources"]
        for field in ("tolerations", "affinity", "nodeSelector", "priorityClassName"):
            found[f"{program}_{field}"] = pod.get(field, {})
    return {name: _flow(value) for name, value in found.items()}


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=_LONGEST)
    return text.removesuffix("...\n").strip()


def _named(objects: tuple[Document, ...]) -> dict[Name, Document]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def _file(name: Name, having: Mapping[str, Document]) -> str:
    """Return the file that an object belongs to: its component's, or what it is part of in the base."""
    if BASE not in having:
        return next(variant for variant in VARIANTS if variant in having and variant != TLS)
    kind = name[0]
    if kind in ("Namespace", "FlowSchema"):
        return {"Namespace": "namespace", "FlowSchema": "flow"}[kind]
    return str(having[BASE]["metadata"]["labels"]["app.kubernetes.io/component"])


def _template(name: Name, having: Mapping[str, Document], order: Document | None) -> str:
    test = _condition(name, having)
    body = ["---", *Merge(settings_of(name)).lines(having, order or next(iter(having.values())))]
    return "\n".join([f"{{{{- if {test} }}}}", *body, "{{- end }}"] if test else body)


def _condition(name: Name, having: Mapping[str, Document]) -> str:
    tests = list(_conditions(name, having))
    return all_of(tests) if tests else ""


def _conditions(name: Name, having: Mapping[str, Document]) -> Iterator[str]:
    file = _file(name, having)
    if test := _OF_FILES.get(file):
        yield test
    if file == "guard" and name[0] in _POLICIES:
        yield f".Values.guard.policies.{name[1].removeprefix('mooring-')}"
    if test := condition(frozenset(having), frozenset(VARIANTS)):
        yield test
