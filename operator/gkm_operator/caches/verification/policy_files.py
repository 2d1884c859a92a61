"""Checks the files that policies name on an interval, so that a removed key takes effect at once."""

import logging
from collections.abc import Callable, Sequence

from gkm.hoststate.logs import fields
from gkm.images.signatures.policy_files import Fingerprint
from gkm.kube.workqueue import WorkQueue

_LOG = logging.getLogger(__name__)
SECONDS = 10.0
_ALL = "policy files"


class PolicyFileWatcher:
    """Calls `changed` when the content of one of the files has changed."""

    def __init__(self, paths: Sequence[str], changed: Callable[[], None]) -> None:
        self._paths = paths
        self._changed = changed
        self._fingerprint = Fingerprint(paths)
        self._digest = self._fingerprint.current()
        self._queue: WorkQueue[str] = WorkQueue("policy-files", self.check, workers=1)

    def start(self) -> None:
        """Check on the interval until `close`; do nothing without files."""
        if self._paths:
            self._queue.add(_ALL)
            self._queue.start()

    def close(self) -> None:
        """Stop the checks."""
        self._queue.close(1.0)

    def check(self, _: str = _ALL) -> float:
        """Check once; return the seconds until the next check."""
        digest = self._fingerprint.current()
        if digest != self._digest:
            self._digest = digest
            _LOG.info("policy files changed; every image is verified again", extra=fields(files=list(self._paths)))
            self._changed()
        return SECONDS
