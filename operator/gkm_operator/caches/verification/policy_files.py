"""The files that policies name, looked at on an interval: a key that is taken away must count at once, unasked."""

import logging
from collections.abc import Callable, Sequence

from gkm.hoststate.logs import fields
from gkm.images.signatures.policy_files import Fingerprint
from gkm.kube.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)
SECONDS = 10.0
_ALL = "policy files"


class PolicyFileWatcher:
    """Calls `changed` when the content of one of the files is another than before."""

    def __init__(self, paths: Sequence[str], changed: Callable[[], None], seconds: float = SECONDS) -> None:
        self._paths = paths
        self._changed = changed
        self._seconds = seconds
        self._fingerprint = Fingerprint(paths)
        self._digest = self._fingerprint.current()
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
        digest = self._fingerprint.current()
        if digest != self._digest:
            self._digest = digest
            _LOG.info("files of policies changed; every image is verified again", extra=fields(files=list(self._paths)))
            self._changed()

    def _look(self, _: str) -> float:
        self.look()
        return self._seconds
