"""Read a pod back after a write with an unknown result, until it is read or certainly deleted."""

import msgspec

from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import NotFound, Status, Unknown, of_object
from mooring.kube.retry import retry_unless_not_found
from scheduler.kube.objects import Pod

_decode_pod = msgspec.json.Decoder(Pod).decode


@retry_unless_not_found
async def read_back(client: Client, path: str) -> Pod:
    """Return the pod at ``path``; raise NotFound if there is none."""
    try:
        body = await client.request("GET", path)
    except NotFound as failed:
        if (said := of_object(failed)) is failed:
            raise
        raise said from failed
    try:
        return _decode_pod(check_object("Pod", body))
    except msgspec.MsgspecError as unreadable:
        raise Unknown(Status(200, message=f"GET {path}: {unreadable}")) from unreadable
