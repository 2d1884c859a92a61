"""The files that record which member of each family this node chose; written on change.

After a failed write, the agent logs it and tries again in the next pass. Until then pods get the earlier choice.
"""

import logging
from collections.abc import Mapping

from gkm.hoststate import families
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

_LOG = logging.getLogger(__name__)


class FamilyFiles:
    """Writes the family files; no other code writes them. Only one thread at a time may use it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._written: dict[CacheRef, FamilyChoice | None] | None = None

    def write(self, choices: Mapping[CacheRef, FamilyChoice], *, complete: bool) -> None:
        """Write the choices of all families; if `choices` are `complete`, remove the files of other families.

        A family that fails does not stop the others.
        """
        failures: list[str] = []
        try:
            if self._written is None:
                self._written = {ref: self._read(ref) for ref in families.refs(self._layout)}
            for ref in (*choices, *[ref for ref in self._written if complete and ref not in choices]):
                try:
                    self._write(self._written, ref, choices.get(ref))
                except OSError as error:
                    failures.append(str(error))
        except OSError as error:
            failures.append(str(error))
        if failures:
            _LOG.error(
                "chosen members of cache families not written, new pods may get the earlier ones",
                extra=fields(count=len(failures), why=failures[0]),
            )

    def _write(self, written: dict[CacheRef, FamilyChoice | None], ref: CacheRef, choice: FamilyChoice | None) -> None:
        if choice is None:
            families.remove(self._layout, ref)
            del written[ref]
        elif written.get(ref) != choice:
            families.save(self._layout, choice)
            written[ref] = choice
            _LOG.info(
                "member of a cache family chosen for new pods on this node",
                extra=fields(family=str(ref), member=choice.member.name, why=choice.why),
            )

    def _read(self, ref: CacheRef) -> FamilyChoice | None:
        try:
            return families.load(self._layout, ref)
        except UnreadableState:
            return None
