"""Write the status of each ProviderTree, which tells the provider whether its tree is used.

The pod of a provider passes refused HyperNodes on as replies. It is written only where it differs, so it is never
repeated, and follows from the state alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
from gkm.api.meta import FALSE, TRUE, Condition, timestamp, with_condition
from gkm.api.provider_trees import (
    ACCEPTED,
    MAX_NAME,
    MAX_REFUSED,
    MAX_TEXT,
    ProviderTreeStatus,
    RefusedHyperNode,
    TreeReason,
)
from gkm.kube.api import Api
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.trees.names import hypernode_name
from gkm.topology.trees.tree import Tree

from gkm_operator.actions import run_each
from gkm_operator.hypernodes.sources import ProviderSource
from gkm_operator.hypernodes.watcher import TopologyWatcher, WatchedTree

_NOT_CONFIGURED = "topology.providers does not name it: add it there, or delete this object and its pod"


@dataclass(slots=True)
class ProviderReplies:
    """Writes the status of ProviderTrees, with the refused HyperNodes of each provider."""

    api: Api
    watcher: TopologyWatcher
    sources: Sequence[ProviderSource]
    hashed: bool
    _refused: Mapping[str, str] = field(default_factory=dict)
    """The errors of the API server about HyperNodes, by the names that providers gave to their domains."""

    def refuse(self, errors: Mapping[str, str], tree: Tree) -> None:
        """Record which HyperNodes the API server refuses now, with the errors; `tree` has their domains."""
        domains = self._domains(tree) if errors else {}
        self._refused = {domains[name]: error for name, error in errors.items() if name in domains}

    def write(self) -> None:
        """Write the status of each ProviderTree whose status differs.

        Raises:
            ApiError: a status cannot be written; others are, unless the API server is away or overloaded.
        """
        by_name = {source.name: source for source in self.sources}
        trees = self.watcher.provider_trees.values()
        run_each(partial(self._write, tree, by_name.get(tree.metadata.name)) for tree in trees)

    def _write(self, found: WatchedTree, source: ProviderSource | None) -> None:
        wanted = self._wanted(found, source)
        if wanted is not None and wanted != found.status:
            # A field that is left out would stay.
            values = {one.encode_name: getattr(wanted, one.name) for one in msgspec.structs.fields(wanted)}
            status = msgspec.to_builtins(values)
            self.api.merge(PROVIDER_TREES, found.metadata.name, {"status": status}, subresource="status")

    def _wanted(self, found: WatchedTree, source: ProviderSource | None) -> ProviderTreeStatus | None:
        if source is None:
            return self._status(found, found.spec.revision, (TreeReason.NOT_CONFIGURED, _NOT_CONFIGURED), {})
        if source.revision is None:
            return None
        verdict = (
            (TreeReason.SET_ASIDE, f"provider {source.name} {source.set_aside}")
            if source.set_aside
            else (TreeReason.ACCEPTED, "")
        )
        refused = {name: error for name, error in self._refused.items() if name in source.names}
        return self._status(found, source.revision, verdict, refused)

    def _status(
        self, found: WatchedTree, revision: int, verdict: tuple[TreeReason, str], refused: Mapping[str, str]
    ) -> ProviderTreeStatus:
        reason, message = verdict
        status = TRUE if reason is TreeReason.ACCEPTED else FALSE
        condition = Condition(ACCEPTED, status, reason, message, timestamp())
        conditions = with_condition(found.status.conditions, condition)
        return ProviderTreeStatus(revision, [*_entries(refused.items())], conditions)

    def _domains(self, tree: Tree) -> Mapping[str, str]:
        """Return the names that providers gave to domains, by the names of their HyperNodes."""
        return {
            hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=self.hashed): domain.name
            for level, domains in zip(tree.levels, tree.domains, strict=True)
            for domain in domains
            if not domain.own
        }


def _entries(refused: Iterable[tuple[str, str]]) -> Iterable[RefusedHyperNode]:
    for name, error in sorted(refused)[:MAX_REFUSED]:
        yield RefusedHyperNode(name[:MAX_NAME], error[:MAX_TEXT])
