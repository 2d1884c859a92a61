"""The files that policies name, looked at on an interval: a key that is taken away must count at once, unasked."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.images.signatures.material import stamp
from gkm.kube.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)
SECONDS = 10.0
_ALL = "policy files"


class PolicyFiles:
    """Calls `changed` when the content of one of the files is another than before.

    By content, not by time or inode: kubelet puts a whole new directory in the place of a mounted ConfigMap, by one
    link, when any file of it changes. What cannot be read is a content too, and verification says what is wrong.
    """

    def __init__(self, paths: Sequence[str], changed: Callable[[], None], seconds: float = SECONDS) -> None:
        self._paths = paths
        self._changed = changed
        self._seconds = seconds
        # Read now: what changes before the first look is a change too.
        self._stamps = self._stamped()
        self._digest = self._read()
        self._queue: WorkQueue[str] = WorkQueue("policy-files", self._look, workers=1)

    def start(self) -> None:
        """Look on the interval until `close`; without files there is nothing to look at."""
        if self._paths:
            self._queue.add(_ALL)
            self._queue.start()

    def close(self) -> None:
        """End it."""
        self._queue.close(1.0)

    def look(self) -> None:
        """Look once."""
        stamps = self._stamped()
        if stamps == self._stamps:
            return
        digest = self._read()
        self._stamps = stamps
        if digest != self._digest:
            self._digest = digest
            _LOG.info("files of policies changed; every image is verified again", extra=fields(files=list(self._paths)))
            self._changed()

    def _look(self, _: str) -> float:
        self.look()
        return self._seconds

    def _stamped(self) -> list[object]:
        return [stamp(path) for path in self._paths]

    def _read(self) -> str:
        hasher = hashlib.sha256()
        for path in self._paths:
            try:
                content = files.read_bounded(Path(path).resolve())
            except (OSError, UnreadableState, ValueError, RuntimeError):
                content = b"unreadable"
            hasher.update(hashlib.sha256(content).digest())
        return hasher.hexdigest()
