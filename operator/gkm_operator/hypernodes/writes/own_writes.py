"""Detect HyperNodes of GKM that another writer changes: they are repaired once, then left alone for a while. No I/O.

Two writers that both repair one object would write forever, and each write makes Volcano's scheduler build its tree
anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gkm.api.hypernodes import HyperNodeObject, HyperNodeSpec
from gkm.topology.trees.hypernode_objects import is_ours

CONTEST_SECONDS = 300.0
"""A HyperNode that another writer changes again within this time after a repair is contested."""


@dataclass(slots=True)
class OwnWrites:
    """Remembers how the API server stored this process's writes, and when it repaired a change by another writer."""

    _specs: dict[str, HyperNodeSpec] = field(default_factory=dict)
    _repaired: dict[str, float] = field(default_factory=dict)

    def answered(self, name: str, stored: HyperNodeObject | None) -> None:
        """Record a HyperNode as the API server stored it; None after its deletion."""
        if stored is None:
            self._specs.pop(name, None)
        else:
            self._specs[name] = stored.spec

    def contested(self, objects: Mapping[str, HyperNodeObject], now: float) -> tuple[str, ...]:
        """Return the names of HyperNodes that another writer changed again soon after GKM repaired them.

        `objects` are those of a list, which never lags behind a write. `now` is monotonic, in seconds. The first change
        is recorded as repaired at `now`: the caller writes what is wanted.
        """
        self._repaired = {name: at for name, at in self._repaired.items() if now - at < CONTEST_SECONDS}
        changed = [*self._changed(objects)]
        again = tuple(name for name in changed if name in self._repaired)
        self._repaired |= dict.fromkeys(changed, now)
        for name in changed:
            self.answered(name, None)
        return again

    def _changed(self, objects: Mapping[str, HyperNodeObject]) -> Iterable[str]:
        """Yield ours with another spec, or that are gone. An object without our label is another source's."""
        for name, spec in self._specs.items():
            found = objects.get(name)
            if found is None or (is_ours(found) and found.spec != spec):
                yield name
