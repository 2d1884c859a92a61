"""Many PodCliqueSets created at once: ComputeDomains for all, their cliques, and nothing left.

`converge_s` is from the first set to the last ComputeDomain, `cliques_s` to the last PodClique; the bench creates these
as Grove does, and repeats what admission refuses. Then all sets are deleted; `leaked` counts the ComputeDomains that a
finalizer holds, and the claim templates that a mark holds. `requests_per_object` are all requests of the controllers
but watches, events included, from the first set to the last deletion, for each ComputeDomain. `admission_p99_ms` is a
review of a PodClique by the process, over TLS as the API server sends it; `clique_p99_ms` the whole request to the API
server, three at a time, while domains are made.

The processes share the machine's cores with the API server, etcd, the controller-manager and the bench.
"""

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import controllers_requests
import domains_load
import domains_place
from domains_load import DOMAINS, CliqueMaker
from domains_place import DomainsPlace
from domains_reviews import review_milliseconds
from domains_templates import TEMPLATES, templates_made
from figures import Result
from process_cost import memory_mib
from support.host.waiting import until

LONGEST_SECONDS = 600.0
COLLECT_SECONDS = 60.0

Row = dict[str, float]


@dataclass(frozen=True)
class DomainsSize:
    """How many runs, sets, replicas of each and reviews there are, and when the controllers have finished."""

    runs: int
    sets: int
    replicas: int
    reviews: int
    calm_seconds: float

    @property
    def domains(self) -> int:
        """Return how many ComputeDomains there are: one for each replica."""
        return self.sets * self.replicas


FULL = DomainsSize(runs=3, sets=500, replicas=8, reviews=2000, calm_seconds=5.0)
SMALLEST = DomainsSize(runs=1, sets=5, replicas=8, reviews=20, calm_seconds=1.0)


def run(size: DomainsSize) -> Result:
    """Measure; every run begins with an empty cluster."""
    return Result.of([_once(size, number) for number in range(1, size.runs + 1)])


def _once(size: DomainsSize, number: int) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True) as directory,
        domains_place.start(Path(directory)) as place,
        templates_made(place.api),
    ):
        row = _measured(size, place)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in row.items())
    sys.stderr.write(f"domains: run {number} of {size.runs}: {shown}\n")
    return row


def _measured(size: DomainsSize, place: DomainsPlace) -> Row:
    before = controllers_requests.count(place.audit)
    began = time.monotonic()
    sets = domains_load.create_sets(place.api, size.sets, size.replicas)
    row = {"sets_s": time.monotonic() - began}
    maker = CliqueMaker(place.api, sets)
    with ThreadPoolExecutor(1) as pool:
        cliques = pool.submit(maker.run, began + LONGEST_SECONDS)
        _until_domains(place, size.domains)
        row["converge_s"] = time.monotonic() - began
        cliques.result()
    row["cliques_s"] = time.monotonic() - began
    controllers_requests.until_calm(place.audit, size.calm_seconds, LONGEST_SECONDS)
    row["requests_to_create"] = (controllers_requests.count(place.audit) - before) / size.domains
    row["refused_cliques"] = float(maker.refusals)
    row["clique_p99_ms"] = _p99(maker.milliseconds)
    row["admission_p99_ms"] = _p99(review_milliseconds(place, sets, size.reviews))
    began = time.monotonic()
    domains_load.delete_sets(place.api, sets)
    with suppress(TimeoutError):
        _until_domains(place, 0)
    row["delete_s"] = time.monotonic() - began
    controllers_requests.until_calm(place.audit, size.calm_seconds, LONGEST_SECONDS)
    with suppress(TimeoutError):  # the garbage collector removes them
        until(lambda: not _left(place), "no claim template", COLLECT_SECONDS, every=0.25)
    row["leaked"] = float(_left(place))
    row["requests_per_object"] = (controllers_requests.count(place.audit) - before) / size.domains
    for name, process in place.gkm.processes.items():
        row["rss_mib" if name == "controllers" else f"{name}_rss_mib"] = memory_mib(process.pid, "VmHWM")
    return row


def _left(place: DomainsPlace) -> int:
    return sum(domains_load.count(place.cluster, resource) for resource in (DOMAINS, TEMPLATES))


def _until_domains(place: DomainsPlace, number: int) -> None:
    until(
        lambda: domains_load.count(place.cluster, DOMAINS) == number,
        f"{number} ComputeDomains",
        LONGEST_SECONDS,
        every=0.25,
    )


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[-1]
