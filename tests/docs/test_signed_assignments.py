"""The commands of the page on signed assignments: what they make, the scheduler signs with and the shim believes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mooring.annotations.assignment_keys import AssignmentKeys
from mooring.annotations.assignment_signature import read_signature
from scheduler.server.startup import load_signing_key
from tests.docs.pages import section

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")
ASSIGNMENT = '{"node":"n1","uid":"u1","v":1,"vfs":[]}'


def run(command: str, folder: Path) -> str:
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_keys_made_by_the_pages_commands_serve(tmp_path: Path) -> None:
    """The private key, the public one, and the id that the third command prints."""
    lines = [line.strip() for line in section("signed-assignments.md", "Switch it on").splitlines()]
    genpkey, pubout, show_id = [line for line in lines if line.startswith("openssl ")]
    run(genpkey, tmp_path)
    run(pubout, tmp_path)
    sign = load_signing_key(str(tmp_path / "signing.pem"))
    assert sign is not None
    signature = sign(ASSIGNMENT)
    assert run(show_id, tmp_path).strip() == read_signature(signature).key
    keys = AssignmentKeys(tmp_path / "assignment-keys.pem")
    assert keys.refusal(ASSIGNMENT.encode(), signature.encode()) == ""
    assert keys.refusal(ASSIGNMENT.replace("u1", "u2").encode(), signature.encode()) != ""
