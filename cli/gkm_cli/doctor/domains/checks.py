"""The checks of ComputeDomains (docs/reference/doctor.md)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gkm_cli.doctor.domains import claims, cluster, compute_domains, readiness
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
        """Read the lists and yield the findings; raise NotChecked if one cannot be read."""
        reader.ensure(*(COLLECTIONS[field] for field in self.fields))
        lists = {field: reader.list(COLLECTIONS[field]) for field in self.fields}
        yield from self.decide(Listed(cutoff=reader.cutoff, namespace=reader.namespace, **lists))


CHECKS = (
    ListCheck(
        "domains/node-labels",
        "every node label names a ComputeDomain",
        compute_domains.node_labels,
        ("nodes", "domains"),
        cluster_wide=True,
    ),
    ListCheck(
        "domains/terminating",
        "no ComputeDomain is stuck in deletion",
        compute_domains.terminating,
        ("domains", "sets", "templates"),
    ),
    ListCheck(
        "domains/orphans",
        "every ComputeDomain has its workload",
        compute_domains.orphans,
        ("domains", "sets", "pods"),
    ),
    ListCheck("domains/readiness", "no ComputeDomain reports a fault", readiness.findings, ("domains",)),
    ListCheck(
        "domains/claim-templates",
        "every claim template has its ComputeDomain",
        claims.templates,
        ("domains", "templates"),
    ),
    ListCheck(
        "domains/template-names",
        "no other claim template has the name of a domain's",
        claims.template_names,
        ("domains", "templates"),
    ),
    ListCheck(
        "domains/claims",
        "every allocated claim has its pod and its ComputeDomain",
        claims.claims,
        ("pods", "domains", "claims"),
    ),
    ListCheck(
        "domains/pods",
        "no pod waits for the claim template of a domain",
        claims.waiting_pods,
        ("pods", "domains", "templates"),
    ),
    ReadingCheck("domains/version", "the kind ComputeDomain has what GKM needs, or is not in use", cluster.version),
    ReadingCheck("domains/switch", "at most one of GKM and Grove makes ComputeDomains", cluster.switch),
)
