"""Decide which cables of a source are used, by the names of adapters and switches. Pure.

A node has cables to several networks. A network for storage or management looks like one for computing, and only people
know which is which.
"""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

_NOT = "!"


@dataclass(frozen=True, slots=True)
class Counted:
    """A filter of cables: globs for adapters (or interfaces) of hosts, and for switches; a glob with ! excludes.

    If all globs exclude, everything else is used.
    """

    adapters: Collection[str] = ()
    switches: Collection[str] = ()

    @property
    def is_all(self) -> bool:
        """Return whether there are no globs, so that every cable is used."""
        return not self.adapters and not self.switches

    def adapter(self, name: str) -> bool:
        """Return whether the cables of the adapter with this name are used; "" if the source gives no name."""
        return _matches(self.adapters, (name,))

    def switch(self, *names: str) -> bool:
        """Return whether cables to a switch are used, by its identifier and name."""
        return _matches(self.switches, names)


EVERY_CABLE = Counted()


def _matches(globs: Collection[str], names: Collection[str]) -> bool:
    def any_of(wanted: Collection[str]) -> bool:
        return any(fnmatchcase(name, glob) for glob in wanted for name in names)

    including = [glob for glob in globs if not glob.startswith(_NOT)]
    return (not including or any_of(including)) and not any_of([glob[1:] for glob in globs if glob.startswith(_NOT)])
