"""Asking lldpd who is at the other end of our Ethernet cables. Where it does not run nobody knows, which is fine."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gkm_agent.fabric import lldp, sysfs
from gkm_agent.fabric.command import Command, CommandFailed, find
from gkm_agent.fabric.lldp import Links, NotUnderstood

CANDIDATES = ("/usr/sbin/lldpcli", "/usr/local/sbin/lldpcli", "/usr/bin/lldpcli", "/usr/local/bin/lldpcli")
ARGUMENTS = ("-f", "json0", "show", "neighbors", "details")
SECONDS = 10.0
MAX_BYTES = 8 << 20
"""512 interfaces with some neighbours of a few kB each."""
# lldpcli begins its complaints with the time; a problem that is told anew each minute would be written each minute.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", re.ASCII)


@dataclass(slots=True)
class Neighbours:
    """Asks lldpcli: the one that is configured, else one at its usual places. `options` come before the question."""

    configured: str = ""
    root: Path = sysfs.ROOT
    options: Sequence[str] = ()
    _command: Command | None = field(default=None, init=False)

    def read(self) -> Links:
        """Return the neighbours; what went wrong is a problem in the answer, nothing is raised."""
        if self._command is None:
            program = find(self.configured, CANDIDATES)
            if program is None:
                missing = (f"fabric.lldpcli: {self.configured} is not there",) if self.configured else ()
                return Links(problems=missing)
            self._command = Command((program, *self.options, *ARGUMENTS), SECONDS, MAX_BYTES)
        try:
            output = self._command.run()
            return lldp.decode(output, self._is_hardware, sysfs.addresses(self.root))
        except (CommandFailed, NotUnderstood) as error:
            return Links(problems=(_MOMENT.sub("", str(error)),))

    def cancel(self) -> None:
        """End a question that is under way in another thread."""
        if self._command is not None:
            self._command.cancel()

    def _is_hardware(self, interface: str) -> bool:
        return sysfs.is_hardware(interface, self.root)
