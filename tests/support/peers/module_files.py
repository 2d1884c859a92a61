"""Files of a partner's source that a test needs besides its command: definitions, templates, stages.

They stay where Go has the module; nothing of them is copied into this repository.
"""

import json
import shutil
import subprocess
from pathlib import Path

from support.peers.build import GO_HINT, find
from support.peers.missing import Missing

DOWNLOAD_SECONDS = 300.0


def source(command: str, module: str) -> Path:
    """Return the directory of `module`, at the version that the partner of `command` is built from.

    Raises:
        Missing: there is no Go.
        RuntimeError: no partner has such a command, or Go cannot get the module.
    """
    peer, _ = find(command)
    go = shutil.which("go")
    if go is None:
        raise Missing(GO_HINT)
    words = [go, "mod", "download", "-json", module]
    done = subprocess.run(
        words, cwd=peer.directory, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
    )
    found = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in found:
        raise RuntimeError(f"{' '.join(words)} in {peer.directory}: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])
