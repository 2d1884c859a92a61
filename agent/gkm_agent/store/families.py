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
        """Write the choices of all families; if `choices` are `complete`, remove the files of other families."""
        try:
            if self._written is None:
                self._written = {ref: self._read(ref) for ref in families.refs(self._layout)}
            for ref, choice in choices.items():
                if self._written.get(ref) != choice:
                    families.save(self._layout, choice)
                    self._written[ref] = choice
                    _LOG.info(
                        "member of a cache family chosen for new pods on this node",
                        extra=fields(family=str(ref), member=choice.member.name, why=choice.why),
                    )
            for ref in [ref for ref in self._written if complete and ref not in choices]:
                families.remove(self._layout, ref)
                del self._written[ref]
        except OSError as error:
            _LOG.error(
                "chosen members of cache families not written, new pods may get the earlier ones",
                extra=fields(why=str(error)),
            )

    def _read(self, ref: CacheRef) -> FamilyChoice | None:
        try:
            return families.load(self._layout, ref)
        except UnreadableState:
            return None
