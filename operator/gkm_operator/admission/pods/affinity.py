"""Adds an affinity to the nodes with a label of ready caches. Pure; adds to the terms of the user.

A required term of the user gets a further expression, because terms are alternatives: another term would allow nodes
that the user excludes. An empty term selects no node, and an expression would make it select some, so it stays.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gkm_operator.admission.domains.placement import PREFERRED, REQUIRED
from gkm_operator.admission.pods.objects import Affinity, NodeAffinity, NodeTerm
from gkm_operator.mnnvl.injection import Operation

WEIGHT = 10
"""Of 100: preferences of the user with larger weights take precedence."""
_AT = "/spec/affinity"
_Change = tuple[str, Any]
"""A path below nodeAffinity, and the value to add there."""


def affinity_operations(affinity: Affinity | None, labels: Sequence[str], *, required: bool) -> Iterator[Operation]:
    """Yield the operations that prefer, or require, nodes with these labels; expressions that are there stay."""
    nodes = affinity.node_affinity if affinity is not None else None
    if nodes is not None:
        changes = (_required if required else _preferred)(nodes, labels)
        yield from ({"op": "add", "path": f"{_AT}/nodeAffinity{path}", "value": value} for path, value in changes)
    elif labels:
        made = {REQUIRED: _selector(labels)} if required else {PREFERRED: _entries(labels)}
        if affinity is None:
            yield {"op": "add", "path": _AT, "value": {"nodeAffinity": made}}
        else:
            yield {"op": "add", "path": f"{_AT}/nodeAffinity", "value": made}


def _preferred(nodes: NodeAffinity, labels: Sequence[str]) -> Iterator[_Change]:
    present = {key for each in nodes.preferred or () for key in _keys(each.preference)}
    entries = _entries([label for label in labels if label not in present])
    if entries and nodes.preferred is None:
        yield f"/{PREFERRED}", entries
    else:
        yield from ((f"/{PREFERRED}/-", entry) for entry in entries)


def _required(nodes: NodeAffinity, labels: Sequence[str]) -> Iterator[_Change]:
    if nodes.required is None:
        if labels:
            yield f"/{REQUIRED}", _selector(labels)
        return
    for index, term in enumerate(nodes.required.node_selector_terms or ()):
        if term.empty:
            continue
        present = set(_keys(term))
        missing = [_expression(label) for label in labels if label not in present]
        at = f"/{REQUIRED}/nodeSelectorTerms/{index}/matchExpressions"
        if missing and term.match_expressions is None:
            yield at, missing
        else:
            yield from ((f"{at}/-", each) for each in missing)


def _selector(labels: Sequence[str]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [_expression(label) for label in labels]}]}


def _entries(labels: Sequence[str]) -> list[dict[str, Any]]:
    return [{"weight": WEIGHT, "preference": {"matchExpressions": [_expression(label)]}} for label in labels]


def _keys(term: NodeTerm) -> Iterator[str]:
    return (each.key for each in term.match_expressions or () if each.operator == _EXISTS)


def _expression(label: str) -> dict[str, str]:
    return {"key": label, "operator": _EXISTS}


_EXISTS = "Exists"
