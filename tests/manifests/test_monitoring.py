"""Alerts and dashboard query what the programs expose, by name and by label."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

from advertiser.publish.metrics import Metrics as AdvertiserMetrics
from cni.__main__ import Options as CniOptions
from cni.plan import vf_counters
from cni.server.metrics import Metrics as CniMetrics
from cri_shim.__main__ import Config as ShimOptions
from cri_shim.metrics import Metrics as ShimMetrics
from scheduler.cycle.instructions import EvictionCause
from scheduler.server import metrics as scheduler_metrics
from scheduler.server import startup
from scheduler.state.machine import Machine
from tests.manifests.rendering import ROOT, raw

_MONITORING = "components/monitoring"
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
# Set by Prometheus: which target a sample came from; le is a histogram's own.
_TARGET = {"instance", "node", "pod", "job", "namespace", "le"}
_SELECTED = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_FUNCTIONS = {"sum", "max", "by", "rate", "increase", "histogram_quantile", "absent", "or", "time"}

_OPTIONS = {
    "mooring-cni": {field.name for field in fields(CniOptions)},
    "mooring-cri-shim": {field.name for field in fields(ShimOptions)},
}


@cache
def _exposed() -> dict[str, set[str]]:
    """Return every sample's name that the four programs expose, with its labels."""
    found: dict[str, set[str]] = {}
    registries = [AdvertiserMetrics()._registry, CniMetrics().registry, ShimMetrics().registry]
    registered = [one for registry in (*registries, REGISTRY) for one in list(registry._collector_to_names)]
    # By name: this one is in the registry only once its module is imported.
    for collector in (*registered, startup._POLICIES):
        if isinstance(collector, MetricWrapperBase):
            (described,) = collector.describe()
            found |= _samples(described, set(collector._labelnames))
    found |= {name: set(vf_counters.labels_of(family)) for name, family in vf_counters.FAMILIES.items()}
    for metric in scheduler_metrics._MachineCollector(Machine("mooring")).collect():
        found |= _samples(metric, set(getattr(metric, "_labelnames", ())))
    return found


def _samples(metric: Metric, labels: set[str]) -> dict[str, set[str]]:
    return {f"{metric.name}{suffix}": labels for suffix in _SUFFIXES.get(metric.type, ())}


def _expressions() -> Iterator[str]:
    (rules,) = raw(f"{_MONITORING}/rules.yaml")
    yield from (rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"])
    dashboard: Any = json.loads((ROOT / _MONITORING / "dashboard.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_what_is_asked_for_is_exposed(expression: str) -> None:
    """Metric by metric; a label must be the metric's own or the target's."""
    exposed = _exposed()
    groups = {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",")}
    bare = re.sub(r'"[^"]*"', '""', _GROUPED.sub("", expression))
    asked = [(name, labels) for name, labels in _SELECTED.findall(re.sub(r"\[\d+[smh]\]", "", bare))]
    metrics = {name: labels for name, labels in asked if name not in _FUNCTIONS}
    assert metrics
    for name, labels in metrics.items():
        assert name in exposed
        assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= exposed[name] | _TARGET
        assert groups <= exposed[name] | _TARGET


def test_alerts_say_what_happened_and_use_labels_that_are_there() -> None:
    """A summary, a description, a known severity; a template's label is kept by the expression."""
    (rules,) = raw(f"{_MONITORING}/rules.yaml")
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert {"summary", "description"} == alert["annotations"].keys()
        used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["description"]))
        if grouped := _GROUPED.findall(alert["expr"]):
            assert used <= {label.strip() for group in grouped for label in group.split(",")}


def test_the_dashboards_choices_are_asked_of_metrics_that_are_there() -> None:
    """A variable whose metric nobody serves has no values."""
    dashboard: Any = json.loads((ROOT / _MONITORING / "dashboard.json").read_text())
    queries = [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    asked = [found for one in queries if (found := re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", one))]
    assert len(asked) == len(queries) > 0
    for name, selected, label in (found.groups("") for found in asked):
        assert {label, *re.findall(r"(\w+)=", selected)} <= _exposed()[name]


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("train-0-x7k2p", "train"),
        ("train-12-x7k2p", "train"),
        ("js-workers-0-1-abcde", "js-workers"),
        ("stateful-3", "stateful"),
        ("llama-70b-train-0", "llama-70b-train"),
        ("alone", "alone"),
    ],
)
def test_a_jobs_name_is_the_beginning_of_its_pods_names(pod: str, job: str) -> None:
    """Of an indexed Job, a JobSet, a StatefulSet, and of a pod without an owner."""
    dashboard: Any = json.loads((ROOT / _MONITORING / "dashboard.json").read_text())
    (pattern,) = (one["regex"] for one in dashboard["templating"]["list"] if one["name"] == "job")
    found = re.search(pattern.strip("/"), pod)
    assert found is not None
    assert found[1] == job


def test_what_happens_once_is_counted_from_nothing() -> None:
    """An increase shows only from a sample before it: the first eviction, the first entry that cannot be read."""
    (rules,) = raw(f"{_MONITORING}/rules.yaml")
    alerts = " ".join(rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"])
    asked = set(re.findall(r"increase\((\w+)", alerts))
    registries = [AdvertiserMetrics()._registry, CniMetrics().registry, REGISTRY]
    collected = [metric for registry in registries for metric in _collected(registry)]
    collected += scheduler_metrics._MachineCollector(Machine("mooring")).collect()
    assert asked
    assert asked <= {sample.name for metric in collected for sample in metric.samples}


def test_each_cause_of_an_eviction_has_its_own_alert() -> None:
    """None speaks of a NIC where a group was half placed. The members of a preempted group are ordinary: no alert."""
    (rules,) = raw(f"{_MONITORING}/rules.yaml")
    expressions = [rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"]]
    asked = [re.findall(r'cause="(\w+)"', one) for one in expressions if "mooring_evictions_total" in one]
    assert sorted(asked) == [[cause] for cause in sorted(get_args(EvictionCause)) if cause != "Preempted"]


def test_the_hosts_programs_are_scraped_where_the_page_lets_them_serve() -> None:
    """The configuration that `docs/operations.md` shows is one that the programs take; its ports are scraped."""
    page = (ROOT.parent / "docs/operations.md").read_text()
    shown = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    scraped = {}
    for config in raw(f"{_MONITORING}/scrapeconfigs.yaml"):
        (address,) = (one for one in config["spec"]["relabelings"] if one.get("targetLabel") == "__address__")
        scraped[config["metadata"]["name"]] = re.sub(address["regex"], address["replacement"].replace("$", "\\"), "h:1")
    assert scraped == {name: f"h{section['metrics_addr']}" for name, section in shown.items()}
    assert all(section.keys() <= _OPTIONS[name] for name, section in shown.items())
    assert scraped.keys() == _OPTIONS.keys()


def test_programs_of_one_host_listen_on_ports_of_their_own() -> None:
    """Advertiser, installer, and shim and CNI server where the page lets them serve; the security page lists them."""
    ports = re.findall(r"replacement: \$1:(\d+)", (ROOT / _MONITORING / "scrapeconfigs.yaml").read_text())
    for path in ("base/advertiser/daemonset.yaml", "components/node-installer/daemonset.yaml"):
        (daemonset,) = raw(path)
        containers = daemonset["spec"]["template"]["spec"]["containers"]
        ports += [str(port["containerPort"]) for container in containers for port in container.get("ports", ())]
    assert len(ports) == len(set(ports)) == 4, ports
    listed = (ROOT.parent / "docs/security.md").read_text()
    assert [port for port in ports if f"- {port}" not in listed] == []


def test_the_registry_is_not_the_tests_own_invention() -> None:
    """The names compared are those of a scrape: a counter that is counted appears under the name that is known."""
    registry = CniMetrics()
    registry.call("ADD", 0, 0.1)
    text = {sample.name for metric in _collected(registry.registry) for sample in metric.samples}
    assert {"mooring_cni_calls_total", "mooring_cni_call_duration_seconds_bucket"} <= text & _exposed().keys()


def _collected(registry: CollectorRegistry) -> list[Metric]:
    return list(registry.collect())
