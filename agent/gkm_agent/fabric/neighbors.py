"""The neighbors at the other end of the node's Ethernet cables, from lldpd. A node without lldpd reports none."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gkm_agent.fabric import lldp, sysfs
from gkm_agent.fabric.command import Command, FabricCommandFailed, find
from gkm_agent.fabric.lldp import Links, NotUnderstood

CANDIDATES = ("/usr/sbin/lldpcli", "/usr/local/sbin/lldpcli", "/usr/bin/lldpcli", "/usr/local/bin/lldpcli")
ARGUMENTS = ("-f", "json0", "show", "neighbors", "details")
SECONDS = 10.0
MAX_BYTES = 8 << 20
"""512 interfaces with a few neighbors of a few kB each."""
# lldpcli starts its error messages with the time. With it, each reading would be a change and cause a write per minute.
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", re.ASCII)


@dataclass(slots=True)
class Neighbors:
    """Runs lldpcli: the configured program, else one at its usual paths. `options` precede the query."""

    configured: str = ""
    root: Path = sysfs.ROOT
    options: Sequence[str] = ()
    _command: Command | None = field(default=None, init=False)

    def read(self) -> Links:
        """Return the neighbors; a failure is a problem in the result, never an exception."""
        if self._command is None:
            program = find(self.configured, CANDIDATES)
            if program is None:
                missing = (f"fabric.lldpcli: {self.configured} is not there",) if self.configured else ()
                return Links(problems=missing)
            self._command = Command((program, *self.options, *ARGUMENTS), SECONDS, MAX_BYTES)
        try:
            output = self._command.run()
            return lldp.decode(output, partial(sysfs.is_hardware, root=self.root), sysfs.addresses(self.root))
        except (FabricCommandFailed, NotUnderstood) as error:
            return Links(problems=(_TIMESTAMP.sub("", str(error)),))

    def cancel(self) -> None:
        """End a query that runs in another thread."""
        if self._command is not None:
            self._command.cancel()
