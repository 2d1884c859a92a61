"""Read nodes, pods and NodeFabrics from files, as commands that need no cluster do."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gkm.api.grammar import count_of
from gkm.topology import lists
from gkm.topology.claims import gpus_by_holder
from gkm.topology.lists import FabricList, NodeList
from gkm.topology.nodes import Node
from gkm.topology.usage import Usage, claiming_pods, usage, with_claims

from gkm_cli.inputs import files
from gkm_cli.output import UsageError

T = TypeVar("T")
ALL_FREE = "no --pods are given: every GPU is taken as free"


def read_nodes(paths: Iterable[Path]) -> NodeList:
    """Return the nodes of several lists as one, for instance of several clusters.

    A node that is listed again without a difference, as in lists that overlap, is one node.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is no list of nodes.
    """
    found = [_listed(lists.parse_nodes, path, "nodes") for path in paths]
    return NodeList(
        tuple(_distinct(node for each in found for node in each.nodes)),
        tuple([entry for each in found for entry in each.unread]),
    )


def read_usage(paths: Iterable[Path], claims: Iterable[Path] = ()) -> Usage:
    """Return the GPUs that the pods in files use; with files of ResourceClaims, also those that claims hold.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is no list of pods, or of claims.
    """
    listed = [_listed(lists.parse_pods, path, "pods") for path in paths]
    pods = [pod for each in listed for pod in each.pods]
    used = replace(usage(pods, [entry for each in listed for entry in each.unread]), claiming=claiming_pods(pods))
    given = [claim for path in claims for claim in _listed(lists.parse_claims, path, "resourceclaims")]
    return with_claims(used, gpus_by_holder(given, lambda *_: None).values()) if claims else used


def read_fabrics(paths: Iterable[Path]) -> FabricList:
    """Return the NodeFabrics of several lists as one.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is no list of NodeFabrics.
    """
    found = [_listed(lists.parse_fabrics, path, "fabrics") for path in paths]
    return FabricList(tuple([fabric for each in found for fabric in each.fabrics]), sum(each.unread for each in found))


def unlisted_node_notes(used: Usage, known: Collection[str]) -> tuple[str, ...]:
    """Return a note if pods use GPUs of nodes that are not listed: the lists may come from two clusters."""
    unlisted = Counter({node: gpus for node, gpus in used.gpus.items() if node not in known})
    if not unlisted:
        return ()
    nodes = count_of(len(unlisted), "node")
    return (
        f"pods take {count_of(unlisted.total(), 'GPU')} of {nodes} that --nodes does not list, such as {min(unlisted)}",
    )


def _distinct(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes but those equal to the first of their name. Nodes that differ from it remain, and are quarantined."""
    first: dict[str, Node] = {}
    for node in nodes:
        if first.setdefault(node.name, node) is node or first[node.name] != node:
            yield node


def _listed(parse: Callable[[Iterable[bytes]], T], path: Path, kind: str) -> T:
    try:
        return parse(files.pieces(path, kind))
    except lists.ListUnreadable as error:
        message, _, hint = str(error).rpartition("; ")
        name = f"--{kind} {files.name(path)}"
        if not message:
            message, hint = hint, f"give the output of kubectl get {kind} -o json, of fewer objects if it is too long"
        raise UsageError(f"{name}: {message}", hint) from error
