"""How many pods controllers make of the templates in an object, when, and by which labels they tell them apart. Pure.

Each rule is that of the kind's controller, with its source. A kind that is not here makes a number that is not known.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cli.plugin.reports.lint.manifests import Place, PodPlace

_LWS = "leaderworkerset.sigs.k8s.io"
_LWS_GROUP = f"{_LWS}/group-key"
_JOB_SET = "jobset.sigs.k8s.io"
_EXCLUSIVE_JOB = f"alpha.{_JOB_SET}/exclusive-topology"
_STORM = "stormservice.orchestration.aibrix.ai"
_RAY_REPLICA = "ray.io/worker-group-replica-name"


class Wait(NamedTuple):
    """Why pods are made later: the field that says so, its value if it is absent, and what they wait for."""

    place: Place
    default: str = ""
    until: str = "others of their group are ready"


class LabelGroup(NamedTuple):
    """The pods of a template with one value of a label, and how many values there are; None if that is not known.

    Templates of an object that name the same ``part`` share the values.
    """

    part: str
    pods: int | None
    values: int | None


@dataclass(frozen=True, slots=True)
class MadePods:
    """Pods of one template: ``pods`` of each of ``controllers`` controllers alike, None if that is not known.

    Of each controller's, ``at_first`` are made before one of them is ready, as ``wait`` says. None is made before those
    of the controllers ``after`` in the same object are. ``labels`` are those that the controller sets and whose values
    are unique in the namespace; ``replica_label`` has one for each replica. Replicas that are not ``independent`` are
    often one job. ``later`` is the field by which some are made only when others have ended. Of pods that the object
    itself owns, with ``owns_pods``, it is the controller.
    """

    pods: int | None
    controllers: int | None = 1
    at_first: int | None = None
    controller: str = ""
    after: Mapping[str, Wait] = field(default_factory=dict)
    wait: Wait | None = None
    labels: Mapping[str, LabelGroup] = field(default_factory=dict)
    replica_label: str = ""
    independent: bool = True
    later: Place | None = None
    owns_pods: bool = False

    @property
    def total(self) -> int | None:
        return _product(self.pods, self.controllers)

    @property
    def started(self) -> int | None:
        """Return how many are made before one of them is ready, if none of another controller is waited for."""
        return self.total if self.at_first is None else _product(self.at_first, self.controllers)

    @property
    def replica(self) -> LabelGroup | None:
        return self.labels.get(self.replica_label)

    def of_label(self, key: str) -> "MadePods":
        """Return the pods that have one value of a label."""
        group = self.labels[key]
        return self if group.values == 1 else replace(self, pods=group.pods, controllers=1)


def made_pods(pod_place: PodPlace) -> Iterator[MadePods]:
    """Yield what is made of a template: a LeaderWorkerSet may make leaders and workers of one."""
    return _KINDS.get(pod_place.owner.partition("/")[0], _unknown)(pod_place)


def _product(*numbers: int | None) -> int | None:
    total = 1
    for number in numbers:
        if number is None:
            return None
        total *= number
    return total


def _number(place: Place, default: int | None) -> int | None:
    """Return a number of pods or controllers; None if it is not a number, as in a template that is not filled in."""
    value = default if place.value is None else place.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _above(pod_place: PodPlace, steps: int = 1) -> Place:
    """Return what contains the template, so many steps above it."""
    return pod_place.whole.at(*pod_place.pod.path[len(pod_place.whole.path) : -steps])


def _unknown(_: PodPlace) -> Iterator[MadePods]:
    yield MadePods(None)


def _pod(_: PodPlace) -> Iterator[MadePods]:
    yield MadePods(1)


def _replicas(pod_place: PodPlace) -> Iterator[MadePods]:
    yield MadePods(_number(_above(pod_place).at("replicas"), 1))


def _stateful_set(pod_place: PodPlace) -> Iterator[MadePods]:
    pods, policy = _number(pod_place.whole.at("spec", "replicas"), 1), pod_place.whole.at("spec", "podManagementPolicy")
    at_first = None if policy.value == "Parallel" or not pods else 1
    yield MadePods(pods, at_first=at_first, wait=Wait(policy, "OrderedReady"))


def _parallel(job: Place) -> int | None:
    """Return how many pods a Job has at one time."""
    parallelism = _number(job.at("parallelism"), 1)
    completions = _number(job.at("completions"), parallelism)
    return None if parallelism is None or completions is None else min(parallelism, completions)


def _later(job: Place) -> Place | None:
    """Return a Job's completions if some of its pods are made only when others have ended."""
    parallel, completions = _parallel(job), _number(job.at("completions"), None)
    return job.at("completions") if parallel and completions is not None and completions > parallel else None


def _job_labels(part: str, pods: int | None, jobs: int | None) -> Mapping[str, LabelGroup]:
    """Return the labels of a Job's pods. Source: kubernetes, pkg/apis/batch/types.go, JobNameLabel and the like."""
    keys = (f"{prefix}{key}" for prefix in ("batch.kubernetes.io/", "") for key in ("job-name", "controller-uid"))
    return dict.fromkeys(keys, LabelGroup(part, pods, jobs))


def _job(pod_place: PodPlace) -> Iterator[MadePods]:
    job = _above(pod_place)
    yield MadePods(_parallel(job), labels=_job_labels("", _parallel(job), 1), later=_later(job))


def _job_set(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read one of a JobSet's replicated jobs, which may wait for earlier ones.

    With ``InOrder`` its Jobs are made when all Jobs of those before it are ready, with ``dependsOn`` when all Jobs of
    the named ones are Ready (their pods are ready, or they have ended) or Complete (they have succeeded). With an
    exclusive topology only the first pod of a Job is made before that has a node. Source: jobset,
    api/jobset/v1alpha2/jobset_types.go, ReplicatedJob.Replicas, DependsOn, StartupPolicy and JobKey;
    pkg/controllers/depends_on.go, dependencyReachedStatus; pkg/controllers/jobset_controller.go,
    labelAndAnnotateObject and addNamespacedJobNodeSelector; pkg/webhooks/pod_webhook.go, ValidateCreate.
    """
    replicated, job = _above(pod_place, 3), _above(pod_place)
    pods, replicas, index = _parallel(job), _number(replicated.at("replicas"), 1), replicated.path[-1]
    exclusive, by_selector = _exclusive_topology(pod_place.whole, replicated)
    has_followers = exclusive is not None and not by_selector and bool(pods)
    whole_set = LabelGroup("", _product(pods, replicas), 1)
    yield MadePods(
        pods,
        replicas,
        at_first=1 if has_followers else None,
        controller=index,
        after=_earlier_jobs(pod_place.whole, replicated),
        wait=Wait(exclusive, until="the first of their Job has a node") if exclusive is not None else None,
        labels={
            f"{_JOB_SET}/job-key": LabelGroup(index, pods, replicas),
            **dict.fromkeys((f"{_JOB_SET}/jobset-name", f"{_JOB_SET}/jobset-uid"), whole_set),
            **_job_labels(index, pods, replicas),
        },
        replica_label=f"{_JOB_SET}/job-key",
        independent=False,
        later=_later(job),
    )


def _exclusive_topology(job_set: Place, replicated: Place) -> tuple[Place | None, bool]:
    """Return the annotation by which Jobs have a domain of their own, and whether nodes have a label for each Job."""
    annotations = [at.at("metadata", "annotations") for at in (replicated.at("template"), job_set)]
    places = [at.at(_EXCLUSIVE_JOB) for at in annotations if at.at(_EXCLUSIVE_JOB).value is not None]
    by_selector = any(at.at("alpha.jobset.sigs.k8s.io/node-selector").value is not None for at in annotations)
    return (places[0], by_selector) if places else (None, False)


def _earlier_jobs(job_set: Place, replicated: Place) -> Mapping[str, Wait]:
    """Return the replicated jobs that one waits for, by index, each with the field that says so."""
    order = job_set.at("spec", "startupPolicy", "startupPolicyOrder")
    jobs = job_set.at("spec", "replicatedJobs")
    if not isinstance(jobs.value, list):
        return {}
    if order.value == "InOrder":
        return {str(index): Wait(order) for index in range(int(replicated.path[-1]))}
    index_of = {
        one["name"]: str(index)
        for index, one in enumerate(jobs.value)
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    earlier: dict[str, Wait] = {}
    for entry, name in _dependencies(replicated):
        waiting = [name]
        while waiting:
            index = index_of.get(waiting.pop())
            if index is not None and index not in earlier:
                earlier[index] = Wait(entry.at("status"))
                # What that one waits for in turn.
                waiting += [before for _, before in _dependencies(jobs.at(index))]
    return earlier


def _dependencies(replicated: Place) -> Iterator[tuple[Place, str]]:
    """Yield each entry of ``dependsOn``, with the name of the replicated job that it is about."""
    entries = replicated.at("dependsOn")
    for index in range(len(entries.value) if isinstance(entries.value, list) else 0):
        entry = entries.at(str(index))
        if isinstance(name := entry.at("name").value, str):
            yield entry, name


def _mpi_job(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read one of an MPIJob's templates; the launcher's pods are those of a Job.

    Source: mpi-operator, pkg/apis/kubeflow/v2beta1/default.go, and types.go, LauncherCreationPolicy.
    """
    replicas, policy = _above(pod_place), pod_place.whole.at("spec", "launcherCreationPolicy")
    if replicas.path[-1] == "Launcher":
        after = {"workers": Wait(policy)} if policy.value == "WaitForWorkersReady" else {}
        yield MadePods(_number(replicas.at("replicas"), 1), controller="launcher", after=after)
    else:
        yield MadePods(_number(replicas.at("replicas"), 0), controller="workers")


def _training_job(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read one of a training job's templates, whose number a controller may change if it is elastic.

    Source: training-operator, pkg/apis/kubeflow.org/v1/defaulting_utils.go, setDefaultReplicas.
    """
    is_elastic = pod_place.whole.at("spec", "elasticPolicy").value is not None
    yield MadePods(None if is_elastic else _number(_above(pod_place).at("replicas"), 1))


def _leader_worker_set(pod_place: PodPlace) -> Iterator[MadePods]:
    yield from _leaders_and_workers(pod_place, pod_place.whole, pod_place.whole.at("spec"))


def _disaggregated_set(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read a role, which is a LeaderWorkerSet in each slice; its annotations are that set's.

    Source: lws, api/disaggregatedset/v1/disaggregatedset_types.go, Slices and RoleScalingExternal, and
    pkg/controllers/disaggregatedset/lws_manager.go, Create.
    """
    index = pod_place.pod.path[len(pod_place.whole.path) + 2]
    role = pod_place.whole.at("spec", "roles", index)
    is_external = role.at("scaling", "mode").value == "External"
    slices = None if is_external else _number(pod_place.whole.at("spec", "slices"), 1)
    # A role of v1alpha1 has the fields of the set's spec itself.
    spec = role if role.at("spec").value is None else role.at("spec")
    yield from _leaders_and_workers(pod_place, role, spec, index, slices)


def _leaders_and_workers(
    pod_place: PodPlace, of_set: Place, spec: Place, part: str = "", copies: int | None = 1
) -> Iterator[MadePods]:
    """Read a template of a LeaderWorkerSet; that of the workers is the leaders' too, if they have none.

    Leaders are the pods of one StatefulSet, and the workers of each those of another one, both parallel. Source: lws,
    pkg/controllers/leaderworkerset_controller.go, and pkg/controllers/pod_controller.go, Reconcile: with an exclusive
    topology, workers are made when their leader has a node. GroupUniqueHashLabelKey is on leaders by
    pkg/webhooks/pod_webhook.go, Default, and on workers by constructWorkerStatefulSetApplyConfiguration.
    """
    exclusive = of_set.at("metadata", "annotations", f"{_LWS}/exclusive-topology")
    replicas, policy = _product(_number(spec.at("replicas"), 1), copies), spec.at("startupPolicy")
    size = _number(spec.at("leaderWorkerTemplate", "size"), 1)
    is_leaders = pod_place.pod.path[-1] == "leaderTemplate"
    if is_leaders or spec.at("leaderWorkerTemplate", "leaderTemplate").value is None:
        yield _leaders(part, replicas)
    if not is_leaders:
        after = dict[str, Wait]()
        if exclusive.value is not None:
            after = {f"leaders{part}": Wait(exclusive, until="their leader has a node")}
        elif policy.value == "LeaderReady":
            after = {f"leaders{part}": Wait(policy)}
        yield replace(_workers(part, size, replicas), after=after)


def _leaders(part: str, replicas: int | None) -> MadePods:
    labels = _replica_labels(part, 1, replicas)
    return MadePods(replicas, controller=f"leaders{part}", labels=labels, replica_label=_LWS_GROUP)


def _workers(part: str, size: int | None, replicas: int | None) -> MadePods:
    pods = size and size - 1
    labels = _replica_labels(part, pods, replicas)
    return MadePods(pods, replicas, controller=f"workers{part}", labels=labels, replica_label=_LWS_GROUP)


def _replica_labels(part: str, pods: int | None, replicas: int | None) -> Mapping[str, LabelGroup]:
    """Return the labels of a LeaderWorkerSet's pods; how subgroups are cut is not counted here."""
    return {
        _LWS_GROUP: LabelGroup(part, pods, replicas),
        f"{_LWS}/name": LabelGroup(part, None, None),
        f"{_LWS}/subgroup-key": LabelGroup(part, None, None),
    }


def _dynamo_graph(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read a component, which is a LeaderWorkerSet if it has several nodes, and else a Deployment.

    Source: dynamo, deploy/operator/api/v1beta1/dynamocomponentdeployment_types.go, Multinode and Replicas. A service
    of v1alpha1 is a component.
    """
    component = pod_place.pod if pod_place.pod.renamed else _above(pod_place)
    replicas, nodes = _number(component.at("replicas"), 1), _number(component.at("multinode", "nodeCount"), 1)
    if nodes == 1:
        yield MadePods(replicas)
    else:
        yield _leaders(component.path[-1], replicas)
        yield _workers(component.path[-1], nodes, replicas)


def _storm_service(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read a role of a RoleSet, which is what a StormService makes several of.

    Source: aibrix, pkg/controller/constants/stormservice.go, RoleSetNameLabelKey and PodSetNameLabelKey, set by
    pkg/controller/roleset/utils.go, renderStormServicePod, and pkg/controller/podset/podset_controller.go,
    createPodFromTemplate.
    """
    role, sets = _above(pod_place), _number(pod_place.whole.at("spec", "replicas"), 1)
    replicas, size = _number(role.at("replicas"), None), _number(role.at("podGroupSize"), 1)
    pods = _product(replicas, size)
    labels = {"roleset-name": LabelGroup("", pods, sets)}
    if size != 1:
        labels[f"{_STORM}/podset-name"] = LabelGroup(role.path[-1], size, _product(replicas, sets))
    yield MadePods(pods, sets, controller=role.path[-1], labels=labels, replica_label="roleset-name")


def _ray(pod_place: PodPlace) -> Iterator[MadePods]:
    """Read head, a worker group, or the submitter of a RayJob, which is made when the cluster is ready.

    Source: kuberay, ray-operator/controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas; common/pod.go,
    DefaultWorkerPodTemplate: RayWorkerReplicaNameKey, with the feature RayMultiHostIndexing (on since its beta), where
    numOfHosts is above 1; rayjob_controller.go, JobDeploymentStatusInitializing; raycluster_controller.go,
    buildHeadPod and buildWorkerPod: SetControllerReference.
    """
    group = _above(pod_place)
    if pod_place.pod.path[-1] == "submitterPodTemplate":
        wait = Wait(group.at("submissionMode"), "K8sJobMode")
        clusters = group.at("rayClusterSpec", "workerGroupSpecs").value
        workers = [f"workers{index}" for index in range(len(clusters) if isinstance(clusters, list) else 0)]
        yield MadePods(1, controller="submitter", after=dict.fromkeys(("head", *workers), wait))
    elif group.path[-1] == "headGroupSpec":
        yield MadePods(1, controller="head", labels={"ray.io/cluster": LabelGroup("", 1, 1)}, owns_pods=True)
    else:
        yield _ray_workers(_above(pod_place, 3), group)


def _ray_workers(cluster: Place, group: Place) -> MadePods:
    hosts, index = _number(group.at("numOfHosts"), 1), group.path[-1]
    lowest, most = _number(group.at("minReplicas"), 0), _number(group.at("maxReplicas"), 2**31 - 1)
    replicas = _number(group.at("replicas"), 0)
    if cluster.at("enableInTreeAutoscaling").value or None in (lowest, most):
        replicas = None
    elif replicas is not None and lowest is not None and most is not None:
        replicas = 0 if group.at("suspend").value else max(min(replicas, most), lowest)
    labels = {"ray.io/cluster": LabelGroup("", _product(hosts, replicas), 1)}
    if hosts != 1:
        labels[_RAY_REPLICA] = LabelGroup(index, hosts, replicas)
    made = MadePods(hosts, replicas, controller=f"workers{index}", labels=labels, replica_label=_RAY_REPLICA)
    return replace(made, owns_pods=True)


_KINDS: Mapping[str, Callable[[PodPlace], Iterator[MadePods]]] = {
    "Pod": _pod,
    **dict.fromkeys(("Deployment", "ReplicaSet", "ReplicationController"), _replicas),
    "StatefulSet": _stateful_set,
    **dict.fromkeys(("Job", "CronJob"), _job),
    "JobSet": _job_set,
    "MPIJob": _mpi_job,
    **dict.fromkeys(("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), _training_job),
    "LeaderWorkerSet": _leader_worker_set,
    "DisaggregatedSet": _disaggregated_set,
    "DynamoGraphDeployment": _dynamo_graph,
    "StormService": _storm_service,
    **dict.fromkeys(("RayCluster", "RayJob", "RayCronJob", "RayService"), _ray),
}
