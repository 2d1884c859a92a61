"""Waits until its standard input ends, which is when its owner is done or dead, and then sweeps the owner's node.

Run as `python -m support.node.janitor DIRECTORY`, in a session of its own. It holds the machine's node lock (inherited)
until the machine is clean.
"""

import signal
import sys
from pathlib import Path

from support.node.sweep import sweep


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
