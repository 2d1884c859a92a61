"""The InfiniBand survey: runs ibnetdiscover on the nodes that the configuration chooses, and stores its output.

ibnetdiscover queries the subnet by management datagrams (/dev/infiniband/umad*, needs root), so one node of a subnet
sees all of it. The sink stores the output compressed, with a first line that counts the queries without an answer;
topology providers read it.
"""

import gzip
import logging
import random
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread

from gkm.api.fabric_settings import Ibnetdiscover
from gkm.api.fabrics import MAX_SURVEY_BYTES
from gkm.gpus.values import printable
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.topology.fabrics.ibnetdiscover import marker, unanswered, with_earlier

from gkm_agent.fabric.command import Command, FabricCommandFailed, find
from gkm_agent.fabric.report import FabricSink
from gkm_agent.interfaces import NotWritten

_LOG = logging.getLogger(__name__)

CANDIDATES = ("/usr/sbin/ibnetdiscover", "/usr/local/sbin/ibnetdiscover", "/usr/bin/ibnetdiscover")
SECONDS = 300.0
MAX_BYTES = 64 << 20
"""Size limit of the output: ibnetdiscover prints 40 to 60 MB for 10,000 nodes with eight ports each."""
BACKOFF = Backoff(5.0, 300.0)
POLL_SECONDS = 5.0
"""Interval in seconds at which a node checks whether the configuration chooses it for the survey."""
# The only line that differs between two runs over the same fabric.
_DATE_LINE = re.compile(rb"^# Topology file: generated on [^\n]*\n", re.MULTILINE)
_FIRST_BYTE = b"#"
_GZIP = 16 + zlib.MAX_WBITS


class UnusableSurvey(ValueError):
    """The text is not a topology of ibnetdiscover, or is too large to store; the message states the cause."""


def pack(output: bytes, missing: int = 0, earlier: bytes = b"") -> bytes:
    """Return ibnetdiscover's output compressed and without its date: the same fabric gives the same bytes.

    `missing` is the number of queries without an answer. If it is not 0, the first line calls the survey partial, and
    the entries that only `earlier`, the last complete survey, has are appended.

    Raises:
        UnusableSurvey: the output names no port, or is larger than a ConfigMap even when compressed.
    """
    if not output.startswith(_FIRST_BYTE) or b"guid=0x" not in output:
        raise UnusableSurvey("ibnetdiscover prints no topology")
    text = marker(missing) + _DATE_LINE.sub(b"", output, count=1)
    if earlier:
        text = with_earlier(text, earlier)
    packed = gzip.compress(text, compresslevel=9, mtime=0)
    if len(packed) > MAX_SURVEY_BYTES:
        raise UnusableSurvey(f"the topology has {len(packed)} bytes compressed, the limit is {MAX_SURVEY_BYTES}")
    return packed


class SubnetSurvey:
    """A thread that runs the survey while the configuration chooses this node.

    `labels` returns the labels of the Node, None while they are unknown. The file `whole` has the last survey in which
    all devices answered, also after a restart; a partial survey is completed from it.
    """

    def __init__(
        self,
        settings: Ibnetdiscover,
        node: str,
        labels: Callable[[], Mapping[str, str] | None],
        sink: FabricSink,
        whole: Path,
    ) -> None:
        self._settings = settings
        self._node = node
        self._labels = labels
        self._sink = sink
        self._whole = whole
        self._stop = Event()
        self._command: Command | None = None
        self._surveyed = False
        self._thread = Thread(target=self._run, name="ibnetdiscover", daemon=True)

    def start(self) -> None:
        """Start the thread if the configuration lets any node survey."""
        if self._settings.nodes or self._settings.node_selector:
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread and a running ibnetdiscover; wait at most `timeout` seconds."""
        self._stop.set()
        if self._command is not None:
            self._command.cancel()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def is_chosen(self) -> bool:
        """Return whether the node selector of the configuration matches this node.

        False while its labels are unknown.
        """
        return self._settings.chooses(self._node, self._labels())

    def once(self) -> bool:
        """Run ibnetdiscover once and store its output; return whether both succeeded."""
        try:
            output, missing = self._output()
            packed = pack(output, missing, self._retained() if missing else b"")
            self._sink.survey(packed)
        except (FabricCommandFailed, UnusableSurvey, NotWritten, OSError) as error:
            if not self._stop.is_set():
                _LOG.warning("InfiniBand survey failed, tried again later", extra=fields(why=str(error)))
            return False
        if not missing:
            self._retain(packed)
        return True

    def _retain(self, packed: bytes) -> None:
        try:
            if not self._whole.is_file() or self._whole.read_bytes() != packed:
                files.replace(self._whole, packed)
        except OSError as error:
            _LOG.warning(
                "complete InfiniBand survey not saved on this node, cannot fill gaps of later ones",
                extra=fields(why=str(error)),
            )

    def _retained(self) -> bytes:
        """Return the text of the last whole survey, b"" if absent."""
        try:
            stream = zlib.decompressobj(_GZIP)
            text = stream.decompress(files.read_bounded(self._whole, MAX_SURVEY_BYTES), MAX_BYTES)
        except FileNotFoundError:
            return b""
        except (UnreadableState, zlib.error) as error:
            _LOG.warning(
                "saved InfiniBand survey unreadable, partial survey not completed from it", extra=fields(why=str(error))
            )
            return b""
        return text if stream.eof else b""

    def _output(self) -> tuple[bytes, int]:
        """Return the output, and how many queries had no answer."""
        program = find(self._settings.command, CANDIDATES)
        if program is None:
            paths = self._settings.command or ", ".join(CANDIDATES)
            hint = "install infiniband-diags on this node, or in the agent's image if it runs in a pod"
            raise FabricCommandFailed(f"ibnetdiscover is not installed at {paths}; {hint}")
        if self._command is None or self._command.arguments[0] != program:
            self._command = Command((program,), SECONDS, MAX_BYTES)
        result = self._command.run()
        missing = unanswered(result.errors.splitlines())
        if missing:
            why = printable(" ".join(result.errors.decode(errors="replace").split()), 160)
            _LOG.warning(
                "InfiniBand survey is partial, some devices did not answer", extra=fields(unanswered=missing, why=why)
            )
        return result.output, missing

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(self._pause(failures)):
            if not self.is_chosen:
                continue
            try:
                done = self.once()
            except Exception:  # noqa: BLE001 -- a defect must not end the thread
                _LOG.exception("InfiniBand survey failed, tried again later")
                done = False
            failures = 0 if done else failures + 1
            self._surveyed = self._surveyed or done

    def _pause(self, failures: int) -> float:
        """Return the seconds until the next survey, spread so that nodes do not survey together."""
        interval = self._settings.interval_seconds * random.uniform(0.9, 1.1)  # noqa: S311 -- spreads load
        if failures:
            return min(interval, BACKOFF.pause(failures))
        return interval if self._surveyed and self.is_chosen else min(interval, POLL_SECONDS)
