"""Which pods use what, and withdrawing the entries that nobody names."""

import logging
from collections.abc import Set as AbstractSet

from gkm.hoststate import files, names, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import InvalidName
from gkm.hoststate.records import VolumeRecord

from gkm_agent import logs, withdrawal
from gkm_agent.desk import Desk


class Collector:
    """Reads the records of mounted volumes; what cannot be read stops collection, and is said once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._complaint = ""
        self._records: list[VolumeRecord] = []
        self._readable = False

    def read(self) -> list[VolumeRecord]:
        """Return the records; while one cannot be read, those that were read last."""
        try:
            self._records = list(records.load_all(self._desk.layout))
            self._readable = True
        except (UnreadableState, OSError) as error:
            self._readable = False
            self._complain(f"a volume record cannot be read, so nothing is collected: {error}")
        return self._records

    def collect(self, wanted: AbstractSet[str]) -> list[str]:
        """Collect every entry whose digest is not wanted and stands in no record; return their digests.

        What is handed in and was read may have changed since: it is looked at again under the entry's lock.
        """
        collected: list[str] = []
        if not self._readable:
            return collected
        used = wanted | {record.digest for record in self._records}
        try:
            for digest in sorted(_entries(self._desk.layout) - used):
                if withdrawal.collect(self._desk, digest):
                    collected.append(digest)
                    logs.event("entry collected", digest=digest)
            self._complaint = ""
        except (UnreadableState, OSError) as error:
            self._complain(f"collection stopped: {error}")
        return collected

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            logs.event("collection", level=logging.ERROR, why=why)


def _entries(layout: Layout) -> set[str]:
    """Return the digests of the entries of the store; what we did not make is passed over."""
    found = set()
    for name in files.names_in(layout.store):
        try:
            found.add(names.digest(f"sha256:{name}"))
        except InvalidName:
            continue
    return found
