"""Running ibnetdiscover on the nodes that configuration chose, and bringing what it prints to the sink.

It asks the subnet manager's side of InfiniBand by management datagrams (/dev/infiniband/umad*, root): one node of a
subnet sees all of it. What it prints is kept as it is, compressed; topology providers read it.
"""

import gzip
import logging
import random
import re
from collections.abc import Callable, Mapping
from threading import Event, Thread

from gkm.api.fabric_settings import Ibnetdiscover
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff

from gkm_agent.fabric.command import Command, CommandFailed, find
from gkm_agent.fabric.objects import MAX_SURVEY_BYTES
from gkm_agent.fabric.sink import FabricSink
from gkm_agent.interfaces.sink import NotWritten

_LOG = logging.getLogger(__name__)

CANDIDATES = ("/usr/sbin/ibnetdiscover", "/usr/local/sbin/ibnetdiscover", "/usr/bin/ibnetdiscover")
SECONDS = 300.0
MAX_BYTES = 64 << 20
"""10,000 nodes with eight ports each print some 20 MB."""
BACKOFF = Backoff(5.0, 300.0)
LOOK_SECONDS = 5.0
"""How soon a node that becomes chosen surveys; also after a start, when our Node is not known yet."""
# The one line that differs between two runs over the same fabric.
_MOMENT = re.compile(rb"^# Topology file: generated on [^\n]*\n", re.MULTILINE)
_BEGINS = b"#"


class NotASurvey(ValueError):
    """The output is not what ibnetdiscover prints, or is too much to be kept; the message says why."""


def chosen(settings: Ibnetdiscover, node: str, labels: Mapping[str, str] | None) -> bool:
    """Return whether this node is one of those that configuration names, or that its labels select."""
    selector = settings.node_selector
    selected = bool(selector) and labels is not None and selector.items() <= labels.items()
    return node in settings.nodes or selected


def pack(output: bytes) -> bytes:
    """Return the output without its date, compressed: the same bytes for the same fabric.

    Raises:
        NotASurvey: it names no port of anything, or compressed it is more than a ConfigMap holds.
    """
    if not output.startswith(_BEGINS) or b"guid=0x" not in output:
        raise NotASurvey("ibnetdiscover prints no topology")
    packed = gzip.compress(_MOMENT.sub(b"", output, count=1), compresslevel=9, mtime=0)
    if len(packed) > MAX_SURVEY_BYTES:
        raise NotASurvey(f"the topology has {len(packed)} bytes compressed, at most {MAX_SURVEY_BYTES} are kept")
    return packed


class SubnetSurvey:
    """A thread that surveys while this node is chosen; `labels` returns those of our Node, None while unknown."""

    def __init__(
        self, settings: Ibnetdiscover, node: str, labels: Callable[[], Mapping[str, str] | None], sink: FabricSink
    ) -> None:
        self._settings = settings
        self._node = node
        self._labels = labels
        self._sink = sink
        self._stop = Event()
        self._command: Command | None = None
        self._surveyed = False
        self._thread = Thread(target=self._run, name="ibnetdiscover", daemon=True)

    @property
    def configured(self) -> bool:
        """Return whether any node could be chosen at all."""
        return bool(self._settings.nodes or self._settings.node_selector)

    def start(self) -> None:
        """Begin, where something is configured."""
        if self.configured:
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """End, with the run that is under way."""
        self._stop.set()
        if self._command is not None:
            self._command.cancel()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def is_chosen(self) -> bool:
        """Return whether this node is to survey now; before our Node is known its labels select nothing."""
        return chosen(self._settings, self._node, self._labels())

    def once(self) -> bool:
        """Survey and keep what was found; return whether that is done."""
        try:
            self._sink.survey(pack(self._output()))
        except (CommandFailed, NotASurvey, NotWritten) as error:
            if not self._stop.is_set():
                _LOG.warning("the InfiniBand subnet is not surveyed", extra=fields(why=str(error)))
            return False
        return True

    def _output(self) -> bytes:
        program = find(self._settings.command, CANDIDATES)
        if program is None:
            looked = self._settings.command or ", ".join(CANDIDATES)
            raise CommandFailed(f"there is no ibnetdiscover at {looked}; install infiniband-diags on this node")
        if self._command is None or self._command.arguments[0] != program:
            self._command = Command((program,), SECONDS, MAX_BYTES)
        return self._command.run()

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(self._pause(failures)):
            if not self.is_chosen:
                continue
            try:
                done = self.once()
            except Exception:  # noqa: BLE001 -- a defect here must not end the surveying
                _LOG.exception("the survey failed")
                done = False
            failures = 0 if done else failures + 1
            self._surveyed = self._surveyed or done

    def _pause(self, failures: int) -> float:
        """Return the seconds until the next look; not when all the others look, which started with this one."""
        interval = self._settings.interval_seconds * random.uniform(0.9, 1.1)  # noqa: S311 -- spreads load
        if failures:
            return min(interval, BACKOFF.pause(failures))
        return interval if self._surveyed and self.is_chosen else min(interval, LOOK_SECONDS)
