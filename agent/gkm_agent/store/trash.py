"""The trash directory of a node: entries are renamed into it at once, and a thread deletes them later.

On a disk with discards, deleting an entry takes seconds. So a pass of the agent never waits for a deletion, and a pull
waits only if it lacks space. After a kill the next agent deletes what the trash holds. A file that cannot be deleted
stays until the next sweep.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition, Thread
from typing import Final

from gkm.hoststate import trees
from gkm.hoststate.logs import fields

_LOG: Final = logging.getLogger(__name__)


class Trash:
    """Deletes the content of the trash directory. Thread-safe; one tree at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._changed = Condition()
        self._is_running = False
        self._stuck: set[str] = set()
        """The files that the last try could not delete."""
        self.emptied: Callable[[], object] = lambda: None
        """Called by the thread when it has deleted all that it can."""

    def sweep(self) -> None:
        """Start to delete everything in the trash, including trees whose deletion failed before."""
        with self._changed:
            self._stuck.clear()
        self.is_emptying()

    def is_emptying(self) -> bool:
        """Return whether a deletion is in progress or still to come; start it if it is not running."""
        with self._changed:
            if not self._is_running and next(self._names(), None) is not None:
                Thread(target=self._run, name="trash", daemon=True).start()
                self._is_running = True  # not before: a caller would wait for a thread that did not start
            return self._is_running

    def wait(self) -> None:
        """Wait until the trash is empty, except for files that cannot be deleted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def _names(self) -> Iterator[str]:
        return (path.name for path in self._directory.iterdir() if path.name not in self._stuck)

    def _run(self) -> None:
        while (name := self._next()) is not None:
            path = self._directory / name
            try:
                trees.remove_side_by_side(path)
            except Exception:  # noqa: BLE001 -- a caller must not wait for ever
                self._stuck.add(name)
                _LOG.exception(
                    "removed files not deleted from the store's trash, the next sweep tries again",
                    extra=fields(path=str(path)),
                )

    def _next(self) -> str | None:
        with self._changed:
            try:
                name = next(self._names(), None)
            except OSError as error:
                name = None
                _LOG.error(
                    "store's trash unreadable, removed entries stay on the disk until a later pass",
                    extra=fields(why=str(error)),
                )
            if name is None:
                self._is_running = False
                self._changed.notify_all()
                self.emptied()
            return name
