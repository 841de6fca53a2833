"""What a support bundle keeps of objects and texts: no planted secret is left, and what Mooring reads is."""

import json

import pytest

from cli.plugin.bundle.redact import REMOVED, redact_object, redact_text
from mooring import names

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"


def planted(secret: str) -> dict[str, object]:
    """Return a pod with a secret in every place that holds free text."""
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "PASSWORD", "value": secret}, {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s"}}}],
        "command": ["sh", "-c", f"run {secret}"],
        "args": [secret],
        "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "Authorization", "value": secret}]}},
        "lifecycle": {"preStop": {"exec": {"command": ["curl", secret]}}},
    }
    volume = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"key": secret}}}
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": [{"value": secret}]}),
        "vendor.example/config": secret,
        names.REQUEST: '[{"min_tx_rate":5}]',
    }
    managed: list[object] = [{"fieldsV1": {f"k:{secret}": {}}}]
    return {
        "metadata": {"name": "p", "annotations": annotations, "managedFields": managed},
        "spec": {"containers": [container], "volumes": [volume], "schedulerName": "mooring"},
        "status": {"containerStatuses": [{"lastState": {"terminated": {"exitCode": 1, "message": secret}}}]},
        "data": {"key": secret},
    }


def test_no_planted_secret_is_left_in_an_object() -> None:
    """Not even a word without any mark of a secret; what the reports read is."""
    shown = redact_object(planted("correct-horse"))
    assert "correct-horse" not in json.dumps(shown)
    assert shown["metadata"]["annotations"][names.REQUEST] == '[{"min_tx_rate":5}]'
    assert shown["spec"]["schedulerName"] == "mooring"
    (container,) = shown["spec"]["containers"]
    assert container["env"] == [
        {"name": "PASSWORD", "value": REMOVED}, {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s"}}},
    ]  # fmt: skip
    assert container["command"] == [REMOVED]
    assert shown["status"]["containerStatuses"] == [{"lastState": {"terminated": {"exitCode": 1, "message": REMOVED}}}]


def test_command_lines_of_moorings_programs_are_kept() -> None:
    """Whatever a pod's labels say; a flag's value that may be a secret is not."""
    ours = {"command": ["mooring-scheduler"], "args": ["--leader-elect=true", "--token", "x", "--password=y", "--v"]}
    assert redact_object(ours) == {
        "command": ["mooring-scheduler"],
        "args": ["--leader-elect=true", "--token", REMOVED, f"--password={REMOVED}", "--v"],
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"got {JWT} from the server", f"got {REMOVED} from the server"),
        (f"key:\n{PEM}\nend", f"key:\n{REMOVED}\nend"),
        ("Authorization: Bearer abc", f"Authorization: {REMOVED}"),
        ("sent bearer abcdefghijklmnopqrst", f"sent bearer {REMOVED}"),
        ("proxy http://me:pw@proxy:3128 refused", f"proxy http://{REMOVED}@proxy:3128 refused"),
        ('{"password": "pw", "user": "me"}', f'{{"password": "{REMOVED}", "user": "me"}}'),
        ("DB_PASSWORD=pw other=1", f"DB_PASSWORD={REMOVED} other=1"),
        ("api-key: pw", f"api-key: {REMOVED}"),
        ("run --client-secret pw now", f"run --client-secret {REMOVED} now"),
        ("AKIAIOSFODNN7EXAMPLE", REMOVED),
        ("join abcdef.0123456789abcdef", f"join {REMOVED}"),
        (r"{\"token\":\"pw\"}", rf"{{\"token\":\"{REMOVED}\"}}"),
    ],
)
def test_what_looks_like_a_credential_is_removed_from_a_text(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        '{"v":1,"boot":"5f1c0e7e-1111","pfs":[{"name":"enp4s0f0","pci":"0000:04:00.0","mbps":100000}]}',
        "0/4 nodes are available: 1 node(s) had no RDMA inventory, 3 not enough free RDMA bandwidth.",
        'MountVolume.SetUp failed for volume "x" : secret "s" not found',
        "2026-11-28T14:00:00.123456789Z bound default/mpi-0 to n1: 0000:05:00.2",
        "https://10.0.0.1:6443/api/v1/pods?limit=500",
    ],
)
def test_what_mooring_writes_stays_as_it_is(text: str) -> None:
    """A report from a bundle is that of the cluster."""
    assert redact_text(text) == text
