"""Which groups of a network have a name already: adding a switch, or a restart, must rename nothing. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gkm.topology.claims import escaped
from gkm.topology.names import hypernode_name, label_value

from gkm_operator.hypernodes.providers.messages import Written


@dataclass(frozen=True, slots=True)
class ExistingNames:
    """The names that a provider's groups have: those that it has `sent`, and those of domains that schedulers see.

    The latter may be hashed, so what the name of a group would be there is looked up.
    """

    written: Written
    sent: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        """Return whether a group has this name."""
        return isinstance(name, str) and (name in self.sent or not self.written.names.isdisjoint(self._seen_as(name)))

    def _seen_as(self, name: str) -> Iterator[str]:
        levels, hashed = self.written.levels, self.written.hashed
        for level in levels:
            yield hypernode_name(level, name, escaped(name), levels, hashed=hashed)
            yield label_value(level, name, escaped(name), hashed=hashed)
