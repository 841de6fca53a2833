"""The registry of plugins holds what the cycle relies on."""

import sys
from pathlib import Path

import pytest

from scheduler import plugins
from scheduler.plugins.interface import (
    ClusterFilterPlugin,
    DryRunPlugin,
    ExtensionPoint,
    ScorePlugin,
    UsageFilterPlugin,
    UsageScorePlugin,
)
from scheduler.plugins.registry import PLUGINS, Plugin


def test_every_extension_point_that_a_file_has_is_in_its_line() -> None:
    """What a line leaves out would be code that looks done and is never asked."""
    (folder,) = plugins.__path__
    files = [path.relative_to(folder).with_suffix("") for path in Path(folder).rglob("[!_]*.py")]
    modules = [sys.modules.get(".".join(("scheduler.plugins", *file.parts))) for file in files]
    assert None not in modules
    defined = [one for module in modules for one in vars(module).values() if isinstance(one, ExtensionPoint)]
    registered = [point for plugin in PLUGINS for point in plugin.points]
    assert [one for one in defined if not any(one is point for point in registered)] == []


@pytest.mark.parametrize("name", ["FLTER", "dry_run", "__doc__"])
def test_a_name_that_is_no_extension_point_is_an_error(name: str) -> None:
    """Its author learns file and name; otherwise a plugin could be without a filter that looks done."""
    message = rf"^scheduler\.plugins\.node_ports: {name} is (?s:.+), not an extension point$"
    with pytest.raises(AssertionError, match=message):
        Plugin("node_ports", "FILTER", name)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_has_one_name_and_all_that_it_needs(plugin: Plugin) -> None:
    """A score without a weight would count for nothing; without a dry run, pods would be preempted in vain."""
    assert [other.name for other in PLUGINS].count(plugin.name) == 1
    assert {point.name for point in plugin.points} == {plugin.name}
    scores = any(isinstance(point, ScorePlugin | UsageScorePlugin | ClusterFilterPlugin) for point in plugin.points)
    assert scores == (plugin.weight > 0)
    judges_usage = any(isinstance(point, UsageFilterPlugin) for point in plugin.points)
    assert judges_usage == any(isinstance(point, DryRunPlugin) for point in plugin.points)
