"""`gkm-operator admission` whose certificates live for seconds: `python rotating_admission.py ARGUMENTS`."""

import signal
import sys
from datetime import timedelta
from pathlib import Path
from threading import Event

from gkm.api import config
from gkm.hoststate import logs
from gkm.hoststate.command_line import Parser
from gkm_operator.admission import command
from gkm_operator.admission.certificates import RotationTimes
from gkm_operator.main import add_admission_flags

TERMS = RotationTimes(
    valid=timedelta(minutes=10),
    renewed=timedelta(seconds=10),
    settle_seconds=5.0,
    check_seconds=0.2,
    copy_seconds=0.2,
)
"""What a pair that was not renewed in time has left is ample: the machine may be slow."""


def main() -> int:
    parser = Parser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--context")
    add_admission_flags(parser)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    logs.configure("info")
    arguments = parser.parse_args()
    loaded = config.load(arguments.config)
    return command.run(arguments, loaded, stop, TERMS)


if __name__ == "__main__":
    sys.exit(main())
