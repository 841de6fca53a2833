"""What a node keeps of a hardware test: the outcomes that its inventory shows."""

from dataclasses import replace
from datetime import UTC, datetime

from cli.node.hardware.plan.checks import STAGES, Answer, not_asked
from cli.node.hardware.plan.report import Subject
from cli.node.hardware.plan.stored import result_of
from mooring.records.hardware_result import HardwareResult

PCI, NOW = "0000:3b:00.0", datetime(2026, 11, 22, 14, tzinfo=UTC)
SUBJECT = Subject("15b3", "101d", "mlx5_core", "22.39.1002", "ethernet", 100_000, "6.12.57", "x86_64", "0.1.0")


def kept(answers: list[Answer], earlier: HardwareResult | None = None, subject: Subject = SUBJECT) -> HardwareResult:
    every = [*answers, *not_asked(STAGES, answers, "its flag was not given")]
    result = result_of(PCI, subject, every, NOW, earlier)
    assert result is not None
    return result


def test_a_rate_is_shown_differs_or_was_not_asked() -> None:
    """By the names that the advertiser reads."""
    result = kept([Answer("traffic.max-rate", "ok", {}), Answer("traffic.min-rate", "differs", {}, "less")])
    assert (result.pf, result.driver, result.kernel, result.firmware) == (PCI, "mlx5_core", "6.12.57", "22.39.1002")
    assert {name: result.checks[name] for name in ("max_rate", "min_rate", "counters")} == {
        "max_rate": "shown",
        "min_rate": "differs",
        "counters": "not_asked",
    }


def test_a_test_that_asked_less_takes_nothing_back() -> None:
    """Without --traffic a later run says nothing about rates; another firmware or kernel begins anew."""
    earlier = kept([Answer("traffic.max-rate", "ok", {}), Answer("traffic.min-rate", "ok", {})])
    answers = [Answer("traffic.max-rate", "differs", {}), Answer("port.active", "info", {})]
    later = kept(answers, earlier)
    assert [later.checks[name] for name in ("max_rate", "min_rate", "port_active")] == ["differs", "shown", "shown"]
    updated = kept(answers, earlier, replace(SUBJECT, firmware="22.43.1014"))
    assert updated.checks["min_rate"] == "not_asked"


def test_harmless_checks_keep_nothing() -> None:
    """They ask the host, not what the NIC does."""
    assert result_of(PCI, SUBJECT, [Answer("host.kernel", "info", {})], NOW, None) is None
