"""Read from the API server whether Mooring's admission policies exist and are bound; needs `get` on both kinds."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound
from mooring.kube.guard import BINDING, BINDINGS_PATH, POLICIES, POLICIES_PATH, POLICY, PolicyState, judge_documents


async def read_policies(client: Client) -> Mapping[str, PolicyState]:
    """Return the state of each policy; unknown if it cannot be read for lack of permission or of an answer."""
    return {name: await _read_policy(client, name) for name in POLICIES}


async def _read_policy(client: Client, name: str) -> PolicyState:
    try:
        policy = await _object(client, f"{POLICIES_PATH}/{name}", POLICY)
        binding = await _object(client, f"{BINDINGS_PATH}/{name}", BINDING)
    except (KubeError, msgspec.MsgspecError, UnicodeDecodeError) as unreadable:
        return PolicyState("unknown", str(unreadable))
    return judge_documents(name, policy, binding)


async def _object(client: Client, path: str, kind: str) -> Mapping[str, Any] | None:
    try:
        return msgspec.json.decode(check_object(kind, await client.request("GET", path)), type=dict[str, Any])
    except NotFound:
        return None
