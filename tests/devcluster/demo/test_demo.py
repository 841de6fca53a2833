"""The demonstration itself, as `./run demo` starts it: every promise held, exit status 0."""

import itertools
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devcluster.api import Api
from devcluster.demo.check import is_running
from devcluster.demo.scenario import DemoPod
from mooring import names
from tests.support.polling import wait_until

pytestmark = pytest.mark.timeout(600)
DEMO = (sys.executable, "-m", "devcluster.demo")
ROOT = Path(__file__).parents[3]


def play(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=550, cwd=ROOT)


@contextmanager
def ended_on_failure(demo: "subprocess.Popen[str]") -> Iterator[None]:
    """End a demo that waits for a person, so that a failed test does not wait for it."""
    try:
        yield
    except BaseException:
        demo.send_signal(signal.SIGINT)
        raise


@pytest.mark.containerd
@pytest.mark.slow
def test_every_promise_holds_with_containerd() -> None:
    """The demonstration runs three hosts with real containerd and runc behind the shim."""
    done = play(*DEMO, "--runtime", "containerd")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "All 9 promises held." in done.stdout
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    assert "✔ 3 GPUs are those decided, each below one switch with its VF (2 checked)" in done.stdout


@pytest.mark.root
def test_every_promise_holds_with_the_fake_runtime() -> None:
    """The demonstration runs without containerd."""
    done = play(*DEMO, "--runtime", "small")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


@pytest.mark.root
@pytest.mark.slow
def test_every_promise_holds_in_a_user_namespace() -> None:
    """The demonstration runs without root, where the kernel allows user namespaces."""
    inside = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh", *DEMO)
    done = play("unshare", "--user", "--map-root-user", "--net", "--mount", "--", *inside)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


@pytest.mark.root
@pytest.mark.slow
def test_a_person_may_use_the_cluster_that_is_kept_up_until_ctrl_c() -> None:
    """The promises are told before it waits; a pod in a namespace of one's own runs, and its VF comes back too."""
    # A shell starts its background jobs with SIGINT ignored, and Python leaves it so: the demo starts as a person's.
    command = ("env", "--default-signal=INT", *DEMO, "--runtime", "small", "--keep")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as demo, ended_on_failure(demo):
        assert demo.stdout is not None
        told = list(itertools.takewhile(lambda line: "kubectl mooring explain" not in line, demo.stdout))
        assert "✔ 9 a job's ranks wait together and start together (6 checked)\n" in told
        page = next(line.strip() for line in told if "http://127.0.0.1:" in line)
        with urllib.request.urlopen(page) as answer:
            assert b"<title>Mooring</title>" in answer.read()
        kubeconfig = next(line.partition("KUBECONFIG=")[2].strip() for line in told if "KUBECONFIG=" in line)
        api = Api.of(Path(kubeconfig))
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}})
        pod = DemoPod("own", "Running", "a person's", {names.REQUEST: "[{}]"}).manifest()
        pod["metadata"] = {**pod["metadata"], "namespace": "mine"}  # type: ignore[dict-item]
        pods = "/api/v1/namespaces/mine/pods"
        # The controllers give a new namespace its account.
        wait_until(lambda: api.items("/api/v1/namespaces/mine/serviceaccounts"), "an account", pause_s=0.2)
        api.request("POST", pods, pod)
        wait_until(lambda: any(map(is_running, api.items(pods))), "the pod runs", pause_s=0.2)
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 0, rest
    assert "All 9 promises held." in rest
