"""Reads what the checks of ComputeDomains decide on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gkm_cli.doctor.domains.listed import COLLECTIONS, Listed
from gkm_cli.doctor.findings import Finding
from gkm_cli.doctor.reader import ClusterReader


@dataclass(frozen=True, slots=True)
class ReadingCheck:
    """A check (gkm_cli.doctor.runner.Check) of single objects of the cluster."""

    name: str
    passed: str
    run: Callable[[ClusterReader], Iterator[Finding]]
    cluster_wide: bool = True


@dataclass(frozen=True, slots=True)
class ListCheck:
    """A check of lists: the fields of `Listed`. A list that an earlier check has read is not read again.

    So all checks together read nodes, ComputeDomains, sets, pods, templates and claims in this order: an object that
    appears or goes between two lists gives no finding, or is younger than the cutoff.
    """

    name: str
    passed: str
    decide: Callable[[Listed], Iterator[Finding]]
    fields: tuple[str, ...]
    cluster_wide: bool = False

    def run(self, reader: ClusterReader) -> Iterator[Finding]:
        """Read the lists and yield the findings; raise Unreadable if one cannot be read."""
        reader.ensure(*(COLLECTIONS[field] for field in self.fields))
        lists = {field: reader.list(COLLECTIONS[field]) for field in self.fields}
        yield from self.decide(Listed(cutoff=reader.cutoff, namespace=reader.namespace, **lists))
