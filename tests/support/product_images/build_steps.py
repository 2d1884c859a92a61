"""Long commands of a build: one at a time, with progress lines; broken off, they leave no process and no mount."""

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import scaled

REPORT_EVERY_SECONDS = 30.0
LONGEST_SECONDS = scaled(900.0)
# A namespace of mounts and of processes: both end with `unshare`, also when it is killed.
ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(frozen=True)
class Step:
    """One command; `what` is what people read."""

    what: str
    command: Sequence[str]


@dataclass(frozen=True)
class Builder:
    """Runs steps; `log` has the output of the last one."""

    log: Path

    def run(self, step: Step) -> None:
        """Run a command to its end.

        Raises:
            RuntimeError: it failed or took too long; the message holds the end of its log.
        """
        say(f"building {step.what}")
        started = time.monotonic()
        # Nobody's death leaves a build behind, ours included.
        tied = [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := shutil.which("setpriv")) else []
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [*tied, *ALONE, *step.command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                code = _wait(process, step.what, started)
            finally:
                process.kill()
                process.wait()
        if code:
            tail = "\n  ".join(self.log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"building {step.what} failed ({' '.join(step.command)}):\n  {tail}")
        say(f"built {step.what} in {time.monotonic() - started:.0f} s")


def _wait(process: subprocess.Popen[bytes], what: str, started: float) -> int:
    while True:
        try:
            return process.wait(REPORT_EVERY_SECONDS)
        except subprocess.TimeoutExpired as late:
            passed = time.monotonic() - started
            if passed > LONGEST_SECONDS:
                raise RuntimeError(f"building {what} took longer than {LONGEST_SECONDS:.0f} s") from late
            say(f"building {what}, {passed:.0f} s so far")


def say(text: str) -> None:
    """Tell somebody on a terminal."""
    print(f"images: {text}", file=sys.stderr, flush=True)
