"""Adds expressions on the labels of nodes to the affinity of a pod. Pure.

A required term of the user's node affinity gets a further expression, because terms are alternatives: another term
would allow nodes that the user excludes. An empty term selects no node, and an expression would make it select some, so
it stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gkm_operator.admission.domains.patches import PREFERRED, REQUIRED, append_entries
from gkm_operator.admission.pods.objects import Affinity, NodeAffinity, NodeTerm
from gkm_operator.mnnvl.injection import Operation

EXISTS = "Exists"
WEIGHT = 10
"""Weight of the added preference, of 100: larger weights of the user take precedence."""
_AT, _NODES = "/spec/affinity", "/spec/affinity/nodeAffinity"


def affinity_operations(
    affinity: Affinity | None, expressions: Sequence[Mapping[str, Any]], *, required: bool
) -> Iterator[Operation]:
    """Yield the patch operations on spec.affinity that make a pod prefer, or require, nodes with these labels."""
    nodes = affinity.node_affinity if affinity is not None else None
    if nodes is not None:
        yield from (_required if required else _preferred)(nodes, expressions)
    elif expressions:
        made = {REQUIRED: _selector(expressions)} if required else {PREFERRED: _entries(expressions)}
        if affinity is None:
            yield {"op": "add", "path": _AT, "value": {"nodeAffinity": made}}
        else:
            yield {"op": "add", "path": _NODES, "value": made}


def _preferred(nodes: NodeAffinity, expressions: Sequence[Mapping[str, Any]]) -> Iterator[Operation]:
    present = {key for each in nodes.preferred or () for key in _keys(each.preference)}
    entries = _entries([each for each in expressions if each["key"] not in present])
    return append_entries(f"{_NODES}/{PREFERRED}", entries, exists=nodes.preferred is not None)


def _required(nodes: NodeAffinity, expressions: Sequence[Mapping[str, Any]]) -> Iterator[Operation]:
    if nodes.required is None:
        if expressions:
            yield {"op": "add", "path": f"{_NODES}/{REQUIRED}", "value": _selector(expressions)}
        return
    for index, term in enumerate(nodes.required.node_selector_terms or ()):
        if term.empty:
            continue
        present = set(_keys(term))
        missing = [each for each in expressions if each["operator"] != EXISTS or each["key"] not in present]
        at = f"{_NODES}/{REQUIRED}/nodeSelectorTerms/{index}/matchExpressions"
        yield from append_entries(at, missing, exists=term.match_expressions is not None)


def _selector(expressions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}


def _entries(expressions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"weight": WEIGHT, "preference": {"matchExpressions": [each]}} for each in expressions]


def _keys(term: NodeTerm) -> Iterator[str]:
    return (each.key for each in term.match_expressions or () if each.operator == EXISTS)
