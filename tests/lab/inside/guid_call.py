"""One call of mooring-cni on a PF that takes GUIDs, which the lab's do not: they stand in a file beside the PF.

python -m tests.lab.inside.guid_call GUIDS.json <conf.json
"""

import os
import sys
from pathlib import Path

from cni.server.dispatch import answer
from mooring.program import log
from tests.lab.inside.guid_settings import GuidVfSettings

log.set_up("guid-call")
done = answer(dict(os.environ), sys.stdin.buffer.read(), lambda: GuidVfSettings(Path(sys.argv[1])))
sys.stdout.write(done.text)
sys.exit(done.status)
