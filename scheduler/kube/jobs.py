"""The Jobs of the cluster (``batch/v1``), as groups read them: how many of their pods have succeeded.

The API also counts deleted pods. Source: JobStatus in staging/src/k8s.io/api/batch/v1/types.go of Kubernetes.
"""

import msgspec

from scheduler.kube.objects import Int32, Metadata, Struct

# Where Jobs are listed.
PATHS = ("/apis/batch/v1/jobs",)


class JobStatus(Struct):
    succeeded: Int32 | None = None


class Job(Struct):
    """A controller of pods that run to completion."""

    metadata: Metadata
    status: JobStatus = msgspec.field(default_factory=JobStatus)
