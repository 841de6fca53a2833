"""The members of a support bundle, its manifest, and the limits that both its writer and its reader keep. Pure.

mooring-support/README.txt                       what is in it, and what was removed
mooring-support/manifest.json                    when and where it was taken, and which lists could be read
mooring-support/api/api/v1/pods/0001.json        a page of a list, under the path that the API server has it at
mooring-support/logs/NAMESPACE/POD/CONTAINER.log
mooring-support/metrics/NAMESPACE/POD.txt
"""

import re
from typing import Literal

import msgspec

FOLDER = "mooring-support"
README, MANIFEST = f"{FOLDER}/README.txt", f"{FOLDER}/manifest.json"
# Characters of names of the API only; a name that begins with a dot would be hidden, or lead out of the folder.
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
MEMBER = re.compile(rf"{FOLDER}(?:/{_PART})+", re.ASCII)
# ustar has this much for a name without its prefix field, and 155 for the prefix.
LONGEST_NAME = 255
MOST_MEMBER_BYTES = 16 << 20
MOST_UNPACKED_BYTES = 1 << 30
MOST_MEMBERS = 20_000
MOST_PAGE_ITEMS = 500
# A page has about this much, except for one with a single large object.
PAGE_BYTES = 4 << 20


class ListResult(msgspec.Struct, omit_defaults=True):
    """What became of a list: its objects' kind and how many pages it has, or the failure of the request."""

    kind: str
    pages: int = 0
    code: int | None = None
    reason: str = ""
    message: str = ""


class Manifest(msgspec.Struct):
    """When a bundle was taken (UNIX time), where, by which version, and its lists by their paths.

    ``leases`` names the Leases that were read: no others may be listed without further rights.
    """

    taken_at: float
    server: str
    namespace: str
    version: str
    lists: dict[str, ListResult]
    leases: list[str]
    notes: list[str]
    kind: Literal["MooringSupportBundle"] = "MooringSupportBundle"
    v: Literal[1] = 1


def page_member(path: str, page: int) -> str:
    """Return the member with a page of a list, counted from 1."""
    return f"{FOLDER}/api{path}/{page:04}.json"


class BundleError(RuntimeError):
    """A bundle cannot be written or read: the message for a person."""
