"""The registry of plugins holds what the cycle relies on."""

import pytest

from scheduler.plugins.interface import (
    ClusterFilterPlugin,
    DryRunPlugin,
    ScorePlugin,
    UsageFilterPlugin,
    UsageScorePlugin,
)
from scheduler.plugins.registry import PLUGINS, Plugin


def test_a_plugin_is_listed_once() -> None:
    """Weights and messages are found by name."""
    names = [plugin.name for plugin in PLUGINS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_all_extension_points_of_a_plugin_have_its_name(plugin: Plugin) -> None:
    assert {point.name for point in plugin.points} == {plugin.name}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_exactly_the_plugins_that_score_have_a_weight(plugin: Plugin) -> None:
    """A score without a weight would count for nothing."""
    scores = any(isinstance(point, ScorePlugin | UsageScorePlugin | ClusterFilterPlugin) for point in plugin.points)
    assert scores == (plugin.weight > 0)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_that_judges_what_pods_leave_has_a_dry_run(plugin: Plugin) -> None:
    """Without one, pods would be sent away for a pod that the plugin refuses afterwards."""
    judges_usage = any(isinstance(point, UsageFilterPlugin) for point in plugin.points)
    assert judges_usage == any(isinstance(point, DryRunPlugin) for point in plugin.points)
