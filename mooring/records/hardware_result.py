"""The last result of `mooring-node hardware-test` for a PF, ``<state>/hardware/<pci>.json``: one file per PF.

    {"v":1,"pf":"0000:04:00.0","driver":"mlx5_core","kernel":"6.12.57+deb13-amd64","firmware":"22.43.1014",
      "mooring":"0.9","at":"2026-11-22T14:00:00Z","checks":{"max_rate":"shown","min_rate":"differs","mac":"not_asked"}}

``driver`` is the PF's, ``kernel`` the release (``uname -r``); ``firmware`` can be empty. ``checks`` has an outcome for
each check: ``shown`` (traffic or device did what was requested), ``differs`` (it did not), ``not_asked``. Readers
ignore unknown checks; the inventory needs ``min_rate`` and ``max_rate``.

A result is valid for the driver and kernel of its test (`HardwareResult.outcome`), because another kernel can write
other values to the same firmware. The test replaces the whole file (`mooring.hardware_folder.keep_result`). It also
writes the text to ``<run>/extract/hardware``, where the advertiser can read it; at boot `mooring-cni serve` copies it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from mooring import names
from mooring.errors import RecordError
from mooring.nic.pci import is_address
from mooring.parsing import Value, dump, parse
from mooring.records import extract

FOLDER = "hardware"
EXTRACT_FOLDER = f"{extract.FOLDER}/{FOLDER}"
IS_NAME = names.with_suffix(is_address)
# The checks that the inventory uses: whether the NIC enforces a rate that was set.
MIN_RATE, MAX_RATE = "min_rate", "max_rate"
Outcome = Literal["shown", "differs", "not_asked"]
_LONGEST = 128
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class HardwareResult:
    """The last test of one PF; ``at`` is its time in UTC."""

    pf: str
    driver: str
    kernel: str
    at: datetime
    checks: Mapping[str, Outcome] = field(default_factory=dict, hash=False)
    firmware: str = ""
    mooring: str = ""

    def outcome(self, check: str, driver: str | None, kernel: str) -> Outcome:
        """Return a check's outcome; ``not_asked`` if the test ran with another driver or kernel."""
        return self.checks.get(check, "not_asked") if (self.driver, self.kernel) == (driver, kernel) else "not_asked"


def read_hardware_result(text: str, name: str) -> HardwareResult:
    """Read a file's text; raise RecordError with ``name``."""
    document = parse(text, name, RecordError).version(1).fields()
    driver, kernel = (document.required(name).string(_LONGEST) for name in ("driver", "kernel"))
    firmware, version = (
        document.optional(name, lambda value: value.string(_LONGEST)) for name in ("firmware", "mooring")
    )
    return HardwareResult(
        pf=names.address(document.required("pf")),
        driver=driver,
        kernel=kernel,
        at=_time(document.required("at")),
        checks=_checks(document.required("checks")),
        firmware=firmware or "",
        mooring=version or "",
    )


def dump_hardware_result(result: HardwareResult) -> str:
    texts = {name: getattr(result, name)[:_LONGEST] for name in ("driver", "kernel", "firmware", "mooring")}
    at = result.at.strftime(_FORMAT)
    return dump({"v": 1, "pf": result.pf, "at": at, "checks": dict(result.checks)} | texts)


def _checks(value: Value) -> dict[str, Outcome]:
    return {name: outcome.choice("shown", "differs", "not_asked") for name, outcome in value.fields().items()}


def _time(value: Value) -> datetime:
    text = value.match(_TIME, "a time such as '2026-11-22T14:00:00Z'")
    try:
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        value.fail(f"{text!r} is not a valid date")
