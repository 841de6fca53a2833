"""The page about plugins: its table is the registry's, and its example works once added as the page shows."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from scheduler.plugins.registry import PLUGINS
from tests.docs.pages import ROOT, files

PAGE = "scheduler-plugins.md"
# Honoured by the queue and by the search for victims.
_ELSEWHERE = ("SchedulingGates", "PrioritySort", "DefaultPreemption")
# Two nodes kept for pods with VFs and a pod that requests none; then one of the nodes is freed.
SCRIPT = """
import msgspec
from mooring.kube.events import Changed, Identity
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine

machine = Machine("mooring")

def node(name, labels):
    status = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}}
    status |= {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}}
    document = {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {}, "status": status}
    machine.nodes(Changed(Identity(name), msgspec.convert(document, Node)), 0.0)

for name in ("n1", "n2"):
    node(name, {"example.com/rdma-only": "true"})
metadata = {"name": "p", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
spec = {"schedulerName": "mooring", "containers": [{"name": "c"}]}
machine.pods(Changed(Identity(uid="u"), msgspec.convert({"metadata": metadata, "spec": spec}, Pod)), 0.0)
print([one.message for one in machine.step(1.0) if hasattr(one, "message")][0])
node("n2", {})
print([one.assigned.node for one in machine.step(5.0) if hasattr(one, "assigned")][0])
machine.check()
"""


def test_the_table_has_the_plugins_in_the_registrys_order_and_weight() -> None:
    """A plugin of kube-scheduler that is honoured is in both, in kube-scheduler's order; our own come last."""
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8").split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\w+) \| [^|]* \| (\d*) ?\| honoured", text, re.MULTILINE)
    registered = [(plugin.name, plugin.weight) for plugin in PLUGINS]
    own = [("RdmaVfs", 2), ("RuntimeClass", 0), ("NodeRelease", 0), ("GpuResources", 0), ("Constraints", 2)]
    honoured = [(name, int(weight or 0)) for name, weight in rows if name not in _ELSEWHERE]
    assert [*honoured, *own] == registered


def test_the_example_is_a_plugin_once_it_is_added_as_the_page_tells(tmp_path: Path) -> None:
    """One file and one line: nodes are refused with its message, and a change of their labels requeues the pod."""
    module, added, message = files(PAGE, "Adding a plugin")
    (entry,) = (line[1:] for line in added.splitlines() if line.startswith("+"))
    plugins = tmp_path / "scheduler" / "plugins"
    shutil.copytree(ROOT / "scheduler", tmp_path / "scheduler", ignore=shutil.ignore_patterns("__pycache__"))
    (plugins / "dedicated_nodes.py").write_text(module, encoding="utf-8")
    before, after = (plugins / "registry.py").read_text(encoding="utf-8").split("\n)\n\n\ndef _points", 1)
    (plugins / "registry.py").write_text(f"{before}\n{entry}\n)\n\n\ndef _points{after}", encoding="utf-8")
    command = [sys.executable, "-c", SCRIPT]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (said.stderr, said.stdout.splitlines()) == ("", [" ".join(message.split()), "n2"])
