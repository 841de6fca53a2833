"""The pod record ``<state>/pods/<uid>.json``: the assignment that the CRI shim has verified and the CNI plugin applies.

    {"v":1,"pod":"<namespace>/<name>","assignment":{…}}

The shim writes it before it forwards RunPodSandbox. From then on any other assignment for that uid is rejected.

The note ``<state>/pods/<uid>.unprivileged`` beside it is written before the record. It means that the pod has had no
container that can change a VF, because it is privileged or has a capability. The shim durably removes the note before
it forwards the first CreateContainer of such a container, and never writes it again. So without the note a container
may have changed the pod's VFs. Pods of earlier versions of the shim, and pods that bypassed the shim, have no note,
either.
"""

from dataclasses import dataclass

from mooring.annotations.assignment import Assignment, assignment_fields, read_assignment_value
from mooring.errors import RecordError
from mooring.names import is_uid, with_suffix
from mooring.parsing import dump, parse

FOLDER = "pods"
UNPRIVILEGED_SUFFIX = ".unprivileged"
IS_NAME = with_suffix(is_uid)
IS_NOTE = with_suffix(is_uid, UNPRIVILEGED_SUFFIX)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """An assignment with its pod's name ``namespace/name``, which is only for messages; the uid is the identity."""

    pod: str
    assignment: Assignment


def uid_as_file_name(uid: str, folder: str) -> str:
    """Return a pod's uid as a file name in a folder of records; raise RecordError if it cannot be one."""
    if not is_uid(uid):
        raise RecordError(folder, "", f"{uid!r} is not a pod uid (at most 63 of A-Z a-z 0-9 _ -)")
    return uid


def pod_record_name(uid: str) -> str:
    """Return the record's path below the state folder; raise RecordError for a uid that cannot be a file name."""
    return f"{FOLDER}/{uid_as_file_name(uid, FOLDER)}.json"


def unprivileged_name(uid: str) -> str:
    """Return the note's path below the state folder; raise RecordError for a uid that cannot be a file name."""
    return pod_record_name(uid).removesuffix(".json") + UNPRIVILEGED_SUFFIX


def read_pod_record(text: str, name: str) -> PodRecord:
    """Read the record stored under ``name``; raise RecordError, also if it belongs to another pod."""
    whole = parse(text, name, RecordError).version(1)
    document = whole.fields({"v", "pod", "assignment"})
    record = PodRecord(
        pod=document.required("pod").string(longest=512),
        assignment=read_assignment_value(document.required("assignment")),
    )
    if pod_record_name(record.assignment.uid) != name:
        whole.fail(f"holds the assignment of the pod {record.assignment.uid!r}")
    return record


def dump_pod_record(record: PodRecord) -> str:
    return dump({"v": 1, "pod": record.pod, "assignment": assignment_fields(record.assignment)})
