"""Starting and ending the partners' processes: by pid, in reverse order, and never outliving the one that started them.

PR_SET_PDEATHSIG is tied to the starting thread, so start partners from a thread that lives as long as they should.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import scaled, until

TAIL_LINES = 20
KILLED_SECONDS = 30.0
"""A process that was killed and is still there after this hangs in the kernel."""


class ProcessFailed(RuntimeError):
    """A partner's process ended or never became ready; the message holds the last lines of its log."""


@dataclass(frozen=True)
class Process:
    """One running partner and its log."""

    name: str
    log: Path
    popen: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, name: str, arguments: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> "Process":
        """Start it; its output goes to `log` only."""
        words = [str(argument) for argument in arguments]
        if setpriv := shutil.which("setpriv"):
            words = [setpriv, "--pdeathsig", "KILL", "--", *words]
        with log.open("ab") as output:
            # A session of its own: Ctrl-C on a terminal ends us, and we end it in order.
            popen = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        return cls(name, log, popen)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def ready(self, probe: Callable[[], object], what: str, seconds: float = 60.0, *, every: float = 0.0) -> None:
        """Wait for `probe`, but no longer than the process lives; `every` is that of `until`.

        Raises:
            ProcessFailed: it ended, or `what` was not the case within `seconds`.
        """

        def check() -> bool:
            if (code := self.popen.poll()) is not None:
                raise ProcessFailed(f"{self.name} ended with code {code} before {what}\n{self.tail()}")
            return bool(probe())

        try:
            until(check, what, seconds, every=every)
        except TimeoutError as late:
            raise ProcessFailed(f"{self.name}: {late}\n{self.tail()}") from late

    def tail(self) -> str:
        """Return the last lines of the log, indented under its path."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n    ".join([f"  {self.log}:", *(line[:400] for line in lines)])

    def stop(self, seconds: float = 10.0) -> None:
        """Ask it to end, insist after `seconds`, and collect it."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(scaled(seconds))
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a crash would.

        Raises:
            ProcessFailed: the kernel does not let it go.
        """
        self.popen.kill()
        try:
            self.popen.wait(scaled(KILLED_SECONDS))
        except subprocess.TimeoutExpired as late:
            raise ProcessFailed(f"{self.name} (pid {self.pid}) was killed and does not end\n{self.tail()}") from late
