"""What a program writes to stderr."""

import json
import subprocess
import sys

_PROGRAM = """
import logging
from mooring.program import log

log.set_up("a-program")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("asyncio").exception("Fatal error on SSL protocol\\ntransport: one")
logging.getLogger("aiohttp.access").info("GET /")
"""


def test_what_a_library_logs_is_one_json_object_too() -> None:
    """asyncio reports what went wrong with a connection by `logging`, on several lines."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    (line,) = ended.stderr.splitlines()
    said = json.loads(line)
    assert said["event"] == "a library reports"
    assert said["program"] == "a-program"
    assert said["level"] == "error"
    assert said["library"] == "asyncio"
    assert said["reason"] == "Fatal error on SSL protocol\ntransport: one"
    assert "ZeroDivisionError" in said["exception"]
