"""Replies to external providers whose domains the API server refuses. They may send them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gkm.topology.hypernodes import HyperNode
from gkm.topology.names import hypernode_name
from gkm.topology.providers import Reply
from gkm.topology.tree import Tree


class Providers(Protocol):
    """The external providers (gkm_operator.hypernodes.providers.host)."""

    def hypernodes(self, provider: str) -> Sequence[HyperNode]:
        """Return the last good HyperNodes of a provider."""

    def reply(self, provider: str, reply: Reply) -> None:
        """Send a reply to a provider."""


@dataclass(frozen=True, slots=True)
class WriteReplies:
    """Sends replies to the providers of these names."""

    providers: Providers
    names: Sequence[str]
    hashed: bool

    def refused(self, name: str, error: str, tree: Tree) -> None:
        """Reply to those who named the domain of the HyperNode `name`."""
        domain = self._domains(tree).get(name)
        for provider in self.names if domain is not None else ():
            if any(hypernode.name == domain for hypernode in self.providers.hypernodes(provider)):
                self.providers.reply(provider, Reply(str(domain), error))

    def _domains(self, tree: Tree) -> Mapping[str, str]:
        """Return the names that providers gave to domains, by the names of their HyperNodes."""
        return {
            hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=self.hashed): domain.name
            for level, domains in zip(tree.levels, tree.domains, strict=True)
            for domain in domains
            if not domain.own
        }
