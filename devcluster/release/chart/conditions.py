"""When a part of an object is there: a condition in the templates' language, from the variants that have the part.

A variant is the base alone, or the base with one component. The TLS of the extender comes with the extender.
"""

from collections.abc import Mapping
from types import MappingProxyType

BASE = "base"
TLS, EXTENDER = "extender-tls", "extender"
# Each variant with the components of its overlay.
VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        BASE: (),
        EXTENDER: (EXTENDER,),
        TLS: (EXTENDER, TLS),
        "signatures": ("signatures",),
        "gpus": ("gpus",),
        "network-status": ("network-status",),
        "rates": ("rates",),
        "limits": ("limits",),
        "monitoring": ("monitoring",),
    }
)
SWITCHES: Mapping[str, str] = MappingProxyType(
    {
        EXTENDER: ".Values.extender.enabled",
        TLS: ".Values.extender.tls.enabled",
        "signatures": ".Values.signatures.enabled",
        "gpus": ".Values.gpus.enabled",
        "network-status": ".Values.networkStatus.enabled",
        "rates": ".Values.rates.enabled",
        "limits": ".Values.limits.enabled",
        "monitoring": ".Values.monitoring.enabled",
    }
)


def condition(having: frozenset[str], scope: frozenset[str]) -> str:
    """Return when a part is there that the variants ``having`` have, where ``scope`` have what it is in.

    Empty: always. Raise ValueError for what no switch says.
    """
    if having == scope:
        return ""
    if BASE in having:
        return all_of([f"not {SWITCHES[name]}" for name in VARIANTS if name in scope - having])
    found = [_alone(name, having) for name in VARIANTS if name in having and not (name == TLS and EXTENDER in having)]
    return found[0] if len(found) == 1 else f"or {' '.join(_nested(one) for one in found)}"


def _alone(name: str, having: frozenset[str]) -> str:
    if name == EXTENDER and TLS not in having:
        return f"and {SWITCHES[EXTENDER]} (not {SWITCHES[TLS]})"
    return SWITCHES[name]


def all_of(conditions: list[str]) -> str:
    """Return the condition that all of these hold."""
    if not conditions:
        raise ValueError("a part that the base has and every component")
    return conditions[0] if len(conditions) == 1 else f"and {' '.join(_nested(one) for one in conditions)}"


def _nested(one: str) -> str:
    return f"({one})" if " " in one else one
