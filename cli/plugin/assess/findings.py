"""What a finding is: its kind, where it is, what is seen there, what harm it does, what would prevent it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """A value that was read: of which object or node, at which path."""

    subject: str
    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; ``kind`` is a key of `KINDS`, ``subject`` the node or object that it is about."""

    kind: str
    subject: str
    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """The title of findings, the harm that they do, and what prevents it."""

    title: str
    harm: str
    prevention: str


KINDS: Mapping[str, Kind] = {
    "vf-lost": Kind(
        "VFs that pods have lost",
        "the pod runs without the interface that it was given, and another pod can get the VF",
        "Mooring's node programs find such a VF, report it on the pod, and give it to nobody meanwhile",
    ),
    "vf-orphaned": Kind(
        "VFs that no pod has and that are not on the host",
        "the VF cannot be given to any pod until the node restarts",
        "Mooring records each VF before it moves it, and returns a VF whose network namespace or pod is gone",
    ),
    "settings-left": Kind(
        "settings that earlier pods left",
        "the next pod with the VF gets the VLAN, rate or trust of another one",
        "Mooring restores what a pod changed when it returns the VF, also after a crash",
    ),
    "vf-used-by-host": Kind(
        "VFs that the host uses and a device plugin offers",
        "a pod that gets the VF takes it away from the host",
        "Mooring looks at routes, links and processes of the host, and never offers such a VF",
    ),
    "pf-oversubscribed": Kind(
        "PFs whose minimum rates exceed the line",
        "no pod on the PF gets the rate that it requested",
        "Mooring adds up the minimum rates of a cable when it places a pod, and once more on the node",
    ),
    "gpu-far": Kind(
        "GPUs that pods have with a far NIC",
        "traffic between GPU and NIC passes the CPU, though a NIC under the same bridge exists",
        "Mooring places GPUs and VFs of a pod together, under the lowest common bridge",
    ),
    "job-half-started": Kind(
        "jobs that were started by halves",
        "the pods that run hold devices and wait for the others",
        "Mooring starts all pods of a group, or none",
    ),
}
