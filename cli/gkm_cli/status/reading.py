"""Read the parts of a status, each by itself: with the checks of gkm doctor, by the lists that these read as well."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from gkm.api.meta import GROUP, timestamp
from gkm.api.topology_settings import Topology
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, RUNS, Resource

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.checks import CHECKS, SIGNATURES
from gkm_cli.doctor.domains.listed import COLLECTIONS
from gkm_cli.doctor.installation import kinds, waiting
from gkm_cli.doctor.installation.observation import observe
from gkm_cli.doctor.runner import ClusterReader, Collection, run_checks
from gkm_cli.status import summary
from gkm_cli.status.parts import Caches, FabricDomains, Nodes, NotKnown, Problems, Status

T = TypeVar("T")


def read(reader: ClusterReader, working: Callable[[str], AbstractContextManager[None]]) -> Status:
    """Return the status of a cluster, or of the namespace of the reader. `working` shows the check that runs."""
    whole = not reader.namespace
    # Doctor first: its checks read the lists in the order that they need.
    problems = _problems(reader, working)
    return Status(
        time=timestamp(reader.now()),
        namespace=reader.namespace,
        nodes=_part(_nodes, reader) if whole else None,
        caches=_part(_caches, reader),
        waiting_pods=_part(
            lambda reading: summary.waiting_pods(waiting.with_volume(observe(reading, ("waiting_pods",)))), reader
        ),
        fabric_domains=_part(_fabric_domains, reader) if whole else None,
        compute_domains=_part(lambda reading: summary.workload_domains(reading.list(COLLECTIONS["domains"])), reader),
        runs=_part(lambda reading: summary.runs(_ours(reading, RUNS)), reader),
        problems=problems,
    )


def settings_of(reader: ClusterReader) -> Topology:
    """Return the section `topology` of the configuration; its defaults if GKM is not installed.

    Raises:
        Unreadable: the configuration cannot be read or used.
    """
    observed = observe(reader, ("config_map",))
    return Topology() if observed.config_map is None else observed.usable_config.topology


def _part(read_part: Callable[[ClusterReader], T], reader: ClusterReader) -> T | NotKnown:
    try:
        return read_part(reader)
    except Unreadable as failure:
        return NotKnown(failure.why, failure.hint)


def _problems(reader: ClusterReader, working: Callable[[str], AbstractContextManager[None]]) -> Problems:
    """Run the checks of doctor, but the one that reads from registries: a status is read again and again."""
    made = [check for check in CHECKS if check.name != SIGNATURES and not (check.cluster_wide and reader.namespace)]
    results = list(run_checks(made, reader, working))
    return summary.problems(results, [check.name for check in CHECKS if check not in made])


def _nodes(reader: ClusterReader) -> Nodes:
    observed = observe(reader, ("nodes", "pods"))
    return summary.nodes(observed.nodes, observed.pods)


def _caches(reader: ClusterReader) -> Caches:
    shared = () if reader.namespace else (CLUSTERGKMCACHES,)
    reports = (GKMCACHENODES,) if reader.namespace else (GKMCACHENODES, CLUSTERGKMCACHENODES)
    return summary.caches(_ours(reader, GKMCACHES, *shared), _ours(reader, *reports))


def _fabric_domains(reader: ClusterReader) -> FabricDomains:
    return summary.fabric_domains(observe(reader, ("nodes",)).nodes, settings_of(reader))


def _ours(reader: ClusterReader, *resources: Resource[Any]) -> tuple[Any, ...]:
    """Return the objects of kinds of GKM. A kind that is not installed has no objects.

    Raises:
        Unreadable: they cannot be listed, or the kind is another product's, whose fields mean something else.
    """
    definitions = _definitions(reader)
    present = [each for each in resources if definitions.get(f"{each.plural}.{GROUP}", True) is not None]
    return tuple(found for each in present for found in reader.list(Collection(each)))


def _definitions(reader: ClusterReader) -> Mapping[str, Any]:
    """Return the definitions of GKM's kinds; {} for a reader of one namespace that may not read them."""
    try:
        observed = observe(reader, ("definitions",))
    except Unreadable:
        if reader.namespace:
            return {}
        raise
    for foreign in kinds.foreign(observed):
        raise Unreadable(f"{foreign.object}: {foreign.detail}", "gkm doctor --check kinds")
    return observed.definitions
