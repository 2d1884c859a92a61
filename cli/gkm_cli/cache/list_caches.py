"""`gkm cache list`: the caches of a cluster, and their faults."""

from typing import Annotated, Any

import typer
from gkm.api.caches import Cache, condition_of, kind_of
from gkm.api.grammar import count_of
from gkm.api.grammar import listed as some
from gkm.api.meta import TRUE, Condition
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.clusters.reads import listed
from gkm_cli.output import CommandFailed, Output, OutputOption, line, show, table

MAX_NAMES = 5
AllNamespacesOption = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="List the caches of all namespaces, and the cluster-wide ones.")
]


def list_caches(
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    all_namespaces: AllNamespacesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the caches of a namespace, or of the cluster: image, nodes that have it, signature, pods that use it."""
    connection = connected(cluster, "" if all_namespaces else namespace)
    where = "" if all_namespaces else namespace or connection.namespace
    found, damaged = _read(connection.api, where, with_cluster=all_namespaces)
    show([_entry(cache) for cache in found], output, lambda: _print(found, where, is_complete=not damaged))
    if damaged:
        caches, names = count_of(len(damaged), "cache"), some(damaged, MAX_NAMES)
        raise CommandFailed(f"{caches} cannot be read: {names}; correct or delete them")


def _read(api: Api, namespace: str, *, with_cluster: bool) -> tuple[list[Cache], list[str]]:
    own, damaged = listed(api, GKMCACHES, ListSelector(namespace=namespace))
    found: list[Cache] = [*own]
    if with_cluster:
        shared, others = listed(api, CLUSTERGKMCACHES, ListSelector())
        found += shared
        damaged += others
    return found, damaged


def _entry(cache: Cache) -> dict[str, Any]:
    status, cause = cache.status, cause_of(cache)
    return {
        "kind": kind_of(cache),
        "namespace": cache.metadata.namespace,
        "name": cache.metadata.name,
        "family": cache.spec.family,
        "generation": cache.spec.generation or 0,
        "pinned": bool(cache.spec.pinned),
        "image": cache.spec.image,
        "digest": status.resolved_digest,
        "ok": cause is None,
        "verified": _condition(cache, "Verified").status,
        "readyNodes": status.ready_nodes,
        "totalNodes": status.total_nodes,
        "failedNodes": status.failed_nodes,
        "incompatibleNodes": status.incompatible_nodes,
        "podsUsing": status.pods_using,
        "sizeBytes": status.size_bytes,
        "failedNodeConditions": status.failed_node_conditions,
        "incompatibleNodeConditions": status.incompatible_node_conditions,
        "reason": cause.reason if cause else "",
        "detail": cause.message if cause else "",
    }


def cause_of(cache: Cache) -> Condition | None:
    """Return the condition that states the fault of a cache; None if it has no fault."""
    found = (_condition(cache, kind) for kind in ("Verified", "Ready"))
    return next((each for each in found if each.status != TRUE), None)


def _condition(cache: Cache, kind: str) -> Condition:
    """Return a condition of a cache; Unknown until the controllers have reported the image that it names now."""
    absent = Condition(kind, "Unknown", "NotReported", "the controllers have not reported it yet", "")
    return condition_of(cache, kind) or absent


def _generation(cache: Cache) -> str:
    """Return the number of a member of a family, and whether it is pinned."""
    number = str(cache.spec.generation or 0) if cache.spec.family or cache.spec.generation else ""
    return " ".join(filter(None, (number, "(pinned)" if cache.spec.pinned else "")))


def _print(caches: list[Cache], namespace: str, *, is_complete: bool) -> None:
    if not caches:
        if not is_complete:
            return
        line(f"no caches in the namespace {namespace}; -A lists all" if namespace else "no caches in the cluster")
        return
    # Only where there are families: a terminal has few columns.
    has_families = any(map(_generation, caches))
    columns = ("family", "generation") if has_families else ()
    rows = []
    for cache in sorted(caches, key=lambda one: (one.metadata.namespace, one.metadata.name)):
        cause = cause_of(cache)
        rows.append(
            (
                cache.metadata.namespace or "(cluster)",
                cache.metadata.name,
                *((cache.spec.family, _generation(cache)) if has_families else ()),
                cache.status.ready or "",
                _condition(cache, "Verified").status,
                cache.status.pods_using,
                cause.reason if cause else "",
                cache.spec.image,
            )
        )
    table(("namespace", "name", *columns, "ready", "verified", "in use", "reason", "image"), rows)
