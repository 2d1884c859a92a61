"""Files of a partner's source that a test needs: definitions, policies, templates, stages.

They stay where Go has the module; nothing of them is copied into this repository. A partner whose commands cannot be
built from modules alone, or are not needed, is a go.mod without `tool`: only its files are used.
"""

import json
import subprocess
from pathlib import Path

from support.host.waiting import scaled
from support.peers.go_modules import PEERS
from support.peers.go_toolchain import go

DOWNLOAD_SECONDS = scaled(300.0)


def source(partner: str, module: str) -> Path:
    """Return the directory of `module`, at the version that the go.mod of `partner` pins.

    Raises:
        Missing: there is no Go.
        RuntimeError: Go cannot get the module.
    """
    directory = PEERS / partner
    words = [str(go()), "mod", "download", "-json", module]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    found = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in found:
        raise RuntimeError(f"{' '.join(words)} in {directory}: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])
