"""The attacks, a file for each way in: importing this package enters them all."""

from bench.hostile.attacks import (
    advertiser_port,
    at_bounds,
    cni_calls,
    containers,
    cri_calls,
    groups,
    inventories,
    pods,
    scheduler_ports,
    tenants,
)

__all__ = [
    "advertiser_port",
    "at_bounds",
    "cni_calls",
    "containers",
    "cri_calls",
    "groups",
    "inventories",
    "pods",
    "scheduler_ports",
    "tenants",
]
