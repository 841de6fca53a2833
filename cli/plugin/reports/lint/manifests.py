"""Parse manifests and record the line of each value; find the pods in them. Pure."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from mooring.bounded_yaml import Bounds, Document, YamlError, as_yaml_error, documents

Path = tuple[str, ...]
# Where the kinds that are known have their pod templates; ``*`` is each entry of a list or map.
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), ("spec.template",)
    ),
    "CronJob": ("spec.jobTemplate.spec.template",),
    "PodTemplate": ("template",),
    # jobset, api/jobset/v1alpha2/jobset_types.go: ReplicatedJob.Template is a JobTemplateSpec of batch/v1.
    "JobSet": ("spec.replicatedJobs.*.template.spec.template",),
    # trainer, pkg/apis/trainer/v1alpha1/trainingruntime_types.go: the template of a JobSet.
    **dict.fromkeys(
        ("ClusterTrainingRuntime", "TrainingRuntime"), ("spec.template.spec.replicatedJobs.*.template.spec.template",)
    ),
    # mpi-operator, pkg/apis/kubeflow/v2beta1/types.go; training-operator, pkg/apis/kubeflow.org/v1/*_types.go:
    # maps of ReplicaSpec, whose Template is in common_types.go.
    "MPIJob": ("spec.mpiReplicaSpecs.*.template",),
    "JAXJob": ("spec.jaxReplicaSpecs.*.template",),
    "PaddleJob": ("spec.paddleReplicaSpecs.*.template",),
    "PyTorchJob": ("spec.pytorchReplicaSpecs.*.template",),
    "TFJob": ("spec.tfReplicaSpecs.*.template",),
    "XGBoostJob": ("spec.xgbReplicaSpecs.*.template",),
    # lws, api/leaderworkerset/v1/leaderworkerset_types.go: the leader's template may be left out.
    "LeaderWorkerSet": ("spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"),
    # lws, api/disaggregatedset/v1/disaggregatedset_types.go: each role is a LeaderWorkerSet, in v1alpha1 without spec.
    "DisaggregatedSet": (
        "spec.roles.*.leaderWorkerTemplate.leaderTemplate",
        "spec.roles.*.leaderWorkerTemplate.workerTemplate",
        "spec.roles.*.spec.leaderWorkerTemplate.leaderTemplate",
        "spec.roles.*.spec.leaderWorkerTemplate.workerTemplate",
    ),
    # aibrix, api/orchestration/v1alpha1/stormservice_types.go and roleset_types.go.
    "StormService": ("spec.template.spec.roles.*.template",),
    # dynamo, deploy/operator/api/v1beta1 and v1alpha1/dynamocomponentdeployment_types.go.
    "DynamoGraphDeployment": ("spec.components.*.podTemplate", "spec.services.*"),
    # kuberay, ray-operator/apis/ray/v1/{raycluster,rayjob,raycronjob,rayservice}_types.go.
    "RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
    "RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.*.template",
        "spec.submitterPodTemplate",
    ),
    "RayCronJob": (
        "spec.jobTemplate.rayClusterSpec.headGroupSpec.template",
        "spec.jobTemplate.rayClusterSpec.workerGroupSpecs.*.template",
        "spec.jobTemplate.submitterPodTemplate",
    ),
    "RayService": (
        "spec.rayClusterConfig.headGroupSpec.template",
        "spec.rayClusterConfig.workerGroupSpecs.*.template",
    ),
    # trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go: its pods come from a TrainingRuntime.
    "TrainJob": (),
}
# Where a pod's parts have other names.
_RENAMED: Mapping[str, Mapping[str, str]] = {
    "spec.services.*": {"metadata": "extraPodMetadata", "spec": "extraPodSpec"},
}
# Where kinds have a pod's spec without a template around it, and where that value has the parts of a pod.
# kserve, pkg/apis/serving/v1alpha2/llm_inference_service_types.go, WorkloadSpec; v1beta1/component.go,
# ComponentExtensionSpec. grove, operator/api/core/v1alpha1/podcliqueset.go, PodCliqueTemplateSpec. argo-workflows,
# pkg/apis/workflow/v1alpha1/workflow_types.go, Template.
_SPECS: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    **dict.fromkeys(
        ("LLMInferenceService", "LLMInferenceServiceConfig"),
        tuple(
            (path, {"metadata": "", "spec": spec})
            for path in ("spec", "spec.prefill")
            for spec in ("template", "worker")
        ),
    ),
    "InferenceService": tuple(("spec.predictor", {"metadata": "", "spec": spec}) for spec in ("", "workerSpec")),
    "PodCliqueSet": (("spec.template.cliques.*", {"metadata": "", "spec": "spec.podSpec"}),),
    **dict.fromkeys(("ClusterWorkflowTemplate", "Workflow", "WorkflowTemplate"), (("spec.templates.*", {"spec": ""}),)),
    "CronWorkflow": (("spec.workflowSpec.templates.*", {"spec": ""}),),
}
# Lists of all pods of a namespace are large.
_BOUNDS = Bounds(characters=16 << 20, values=200_000)


class ManifestError(Exception):
    """A file that is not YAML, and from which line on; ``rule`` has the column, where that is known."""

    def __init__(self, line: int, rule: str, column: int | None = None) -> None:
        self.line = line
        self.rule = rule if column is None else f"{rule} (column {column})"
        super().__init__(f"line {line}: {self.rule}")


@dataclass(frozen=True, slots=True)
class Place:
    """A value of a document, its path, and the lines of all values (counted from 1) by their whole paths.

    ``renamed`` has the fields of a pod that are at other paths in this value, empty for the value itself.
    """

    value: Any
    path: Path
    lines: Mapping[Path, int]
    renamed: Mapping[str, str] = field(default_factory=dict)

    def at(self, *steps: str) -> "Place":
        """Step into the value; a missing one is None, at the place of its parent."""
        value, path = self.value, self.path
        first = self.renamed.get(steps[0], steps[0]) if steps else ""
        for step in (*filter(None, first.split(".") if self.renamed else [first]), *steps[1:]):
            if isinstance(value, list):
                value = value[int(step)] if step.isdecimal() and int(step) < len(value) else None
            else:
                value = value.get(step) if isinstance(value, dict) else None
            path = (*path, step)
        return Place(value, path, self.lines)

    @property
    def line(self) -> int:
        return next(
            self.lines[self.path[:end]] for end in range(len(self.path), -1, -1) if self.path[:end] in self.lines
        )

    @property
    def field(self) -> str:
        return render(self.path)


def render(path: Path) -> str:
    """Return a path as kubectl writes fields: ``spec.replicatedJobs[0].template``."""
    return "".join(f"[{step}]" if step == "*" or step.isdecimal() else f".{step}" for step in path).lstrip(".")


@dataclass(frozen=True, slots=True)
class PodPlace:
    """A pod, or a pod template, and the object that contains it: ``Deployment/web``.

    ``pattern`` is the path of the object's templates of this sort, from the object on.
    """

    owner: str
    pod: Place
    whole: Place
    pattern: Path = ()


@dataclass(frozen=True, slots=True)
class WithoutPods:
    """An object without pod templates; of a kind that ``has_pods`` they come from another object, or are misspelt."""

    owner: str
    kind: str
    whole: Place
    has_pods: bool


def pods(text: str) -> Iterator[PodPlace | WithoutPods]:
    """Yield a file's pods and its objects without pods, in order; raise ManifestError."""
    try:
        for document in documents(text, _BOUNDS):
            yield from pods_of(_read(document))
    except YamlError as error:
        raise ManifestError(error.line or 1, error.rule, error.column) from error


def pods_of(whole: Place, of: str = "") -> Iterator[PodPlace | WithoutPods]:
    """Yield the pods in one object; ``of`` is its kind if it names none, as in a PodList."""
    kind = whole.at("kind").value or of
    items = whole.at("items").value
    if not isinstance(kind, str) or not kind:
        return
    if kind.endswith("List") and isinstance(items, list):
        for index in range(len(items)):
            yield from pods_of(whole.at("items", str(index)), kind.removesuffix("List"))
        return
    owner = f"{kind}/{whole.at('metadata', 'name').value or whole.at('metadata', 'generateName').value or '?'}"
    if kind == "Pod":
        yield PodPlace(owner, whole, whole)
        return
    found = [PodPlace(owner, pod, whole, pattern) for pattern, pod in _templates(kind, whole)]
    yield from found
    if not found:
        yield WithoutPods(owner, kind, whole, kind in _TEMPLATES)


def _templates(kind: str, whole: Place) -> Iterator[tuple[Path, Place]]:
    """Yield an object's pod templates, each with its path where ``*`` stands for any entry.

    Where a kind is unknown, or has none of the templates that it is known for, they are searched at any depth.
    Volcano's Job shares its kind with Kubernetes' own.
    """
    is_found = False
    for path in _TEMPLATES.get(kind, ()):
        pattern = tuple(path.split("."))
        for pod in _expand(whole, pattern):
            is_found = True
            yield pattern, replace(pod, renamed=_RENAMED.get(path, {}))
    for path, renamed in _SPECS.get(kind, ()):
        pattern = tuple(path.split("."))
        for around in _expand(whole, pattern):
            pod = replace(around, renamed=renamed)
            if pod.at("spec").value is not None:
                is_found = True
                yield pattern, pod
    if not is_found:
        for pod in _search(whole):
            yield pod.path[len(whole.path) :], pod


def _search(place: Place) -> Iterator[Place]:
    """Yield the outermost values at or below a place that have a pod's ``spec.containers``, or are such a spec."""
    if _has_containers(place.at("spec")):
        yield place
        return
    if _has_containers(place):
        yield replace(place, renamed={"metadata": "", "spec": ""} if "annotations" in place.value else {"spec": ""})
        return
    keys = map(str, range(len(place.value))) if isinstance(place.value, list) else place.value
    for key in keys if isinstance(place.value, list | dict) else ():
        yield from _search(place.at(key))


def _has_containers(spec: Place) -> bool:
    containers = spec.at("containers").value
    return isinstance(containers, list) and any(isinstance(container, dict) for container in containers)


def _expand(place: Place, pattern: Path) -> Iterator[Place]:
    """Yield the values at a path below a place."""
    if "*" not in pattern:
        value_place = place.at(*pattern)
        if value_place.value is not None:
            yield value_place
        return
    star = pattern.index("*")
    several = place.at(*pattern[:star])
    keys = map(str, range(len(several.value))) if isinstance(several.value, list) else several.value
    for key in keys if isinstance(several.value, list | dict) else ():
        yield from _expand(several.at(key), pattern[star + 1 :])


def _read(document: Document) -> Place:
    """Return a document with the lines of its values; raise YamlError."""
    lines: dict[Path, int] = {}
    with as_yaml_error():
        return Place(_value(document.loader, document.node, (), lines), (), lines)


def _value(loader: Any, node: Any, path: Path, lines: dict[Path, int]) -> Any:
    """Return a node's value, and record its line and those of all values in it."""
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*path, str(index)), lines) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    loader.flatten_mapping(node)
    found = {}
    for key, value in node.value:
        constructed = loader.construct_object(key, deep=True)
        if not isinstance(constructed, Hashable):
            # As SafeConstructor.construct_mapping (yaml/constructor.py) does.
            raise ConstructorError(problem="found unhashable key", problem_mark=key.start_mark)
        name = str(constructed)
        found[name] = _value(loader, value, (*path, name), lines)
        # A value may begin on a later line than its key, where people search.
        lines[(*path, name)] = key.start_mark.line + 1
    return found
