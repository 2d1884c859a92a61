"""Choose the member of a family that a pod gets as an image volume, before the pod has a node. Pure.

A member is for the nodes that have the labels of its nodeSelector and, for NVIDIA, the compute capability that its
image states. A pod gets one only where its constraints, or a constraint that it asked for, keep it on such nodes.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gkm.hoststate.names import quoted
from gkm.runtimes import BY_NAME
from gkm.runtimes.placement import names_in

from gkm_operator.admission.pods.members import ThinCache
from gkm_operator.admission.pods.objects import CachePodSpec, NodeTerm

MAJOR: Final = "nvidia.com/gpu.compute.major"
MINOR: Final = "nvidia.com/gpu.compute.minor"
"""Labels that GPU feature discovery sets on Nodes (NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery)."""
_CAPABILITY: Final = re.compile(r"sm_([0-9]{1,2})([0-9])", re.ASCII)
MAX_SHOWN: Final = 4

Needs = Mapping[str, frozenset[str]]
"""Label keys that a node must have, each with its possible values."""


class NoImageVolume(Exception):
    """No member of the family can be an image volume of the pod; the message says why and what to do."""


class Choice(NamedTuple):
    """The chosen member of a family, and further labels that the pod's nodes must have."""

    member: ThinCache
    further: Needs


class _Fit(Enum):
    STATED, OPEN, EXCLUDED = range(3)


def choose(members: Sequence[ThinCache], pod: CachePodSpec, *, required: bool) -> Choice:
    """Return the member that a pod gets; with `required`, the pod accepts further node constraints.

    Raises:
        NoImageVolume: no member is usable, or the constraints of the pod do not decide.
    """
    usable = [(member, _needs(member)) for member in members if not why_unusable(member)]
    if not usable:
        raise NoImageVolume(_why_none(members))
    fits = [(_fit(pod, needs), member, needs) for member, needs in usable]
    for fit, member, _ in fits:
        if fit is _Fit.STATED:
            return Choice(member, {})
    opened = [(member, needs) for fit, member, needs in fits if fit is _Fit.OPEN]
    if not opened:
        raise NoImageVolume(f"the pod excludes the nodes that its verified caches are for: {_shown(usable)}")
    if any(needs != opened[0][1] for _, needs in opened):
        raise NoImageVolume(f"its caches are for several kinds of nodes: name one in nodeSelector: {_shown(opened)}")
    if not required:
        raise NoImageVolume(
            f"the pod may start on a node that the cache is not for: write nodeSelector {_shown(opened[:1])}, or the "
            "annotation gkm.io/cache-nodes: required"
        )
    return Choice(*opened[0])


def why_unusable(member: ThinCache) -> str:
    """Return why a member cannot be an image volume, "" if it can."""
    volume, runtimes = member.image_volume, names_in(member.status.runtime)
    if volume is None:
        return "it is not verified, or was not built with gkm cache build --for-path"
    if not runtimes:
        return "its runtime is not known to this GKM"
    writing = [BY_NAME[name].title for name in runtimes if BY_NAME[name].needs_private_layer]
    if writing:
        return f"{writing[0]} writes beside its kernels, and an image volume is read-only"
    if _capabilities(volume.gpus) or member.spec.node_selector:
        return ""
    return f"no label of nodes states {', '.join(volume.gpus[:MAX_SHOWN])}: name the nodes in spec.nodeSelector"


def expressions(needs: Needs) -> list[dict[str, object]]:
    """Return the node affinity expressions that require one of the given values of each label."""
    return [{"key": key, "operator": "In", "values": sorted(values)} for key, values in sorted(needs.items())]


def _needs(member: ThinCache) -> Needs:
    needs = {key: frozenset({value}) for key, value in (member.spec.node_selector or {}).items()}
    found = _capabilities(member.image_volume.gpus if member.image_volume else ())
    if found:
        needs[MAJOR], needs[MINOR] = (frozenset(each) for each in zip(*found, strict=True))
    return needs


def _capabilities(gpus: Collection[str]) -> set[tuple[str, str]]:
    """Return the compute capabilities, none unless two lists of values state exactly these."""
    matches = [_CAPABILITY.fullmatch(gpu) for gpu in gpus]
    found = {(match[1], match[2]) for match in matches if match}
    majors, minors = {major for major, _ in found}, {minor for _, minor in found}
    return found if None not in matches and len(found) == len(majors) * len(minors) else set()


def _fit(pod: CachePodSpec, needs: Needs) -> _Fit:
    fits = {_fit_of(pod, key, values) for key, values in needs.items()}
    if _Fit.EXCLUDED in fits:
        return _Fit.EXCLUDED
    return _Fit.OPEN if _Fit.OPEN in fits else _Fit.STATED


def _fit_of(pod: CachePodSpec, key: str, values: frozenset[str]) -> _Fit:
    """Return whether the nodes of a pod have one of the values of a label."""
    required = [set(each) for each in _allowed(pod, key)]
    if any(each <= values for each in required):
        return _Fit.STATED
    return _Fit.EXCLUDED if any(each.isdisjoint(values) for each in required) else _Fit.OPEN


def _allowed(pod: CachePodSpec, key: str) -> Iterator[Collection[str]]:
    """Yield sets of values of a label; each node of the pod has a value of each set."""
    if key in (pod.node_selector or {}):
        yield ((pod.node_selector or {})[key],)
    affinity = pod.affinity.node_affinity if pod.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    by_term = [_values(term, key) for term in terms if not term.empty]
    if by_term and None not in by_term:
        yield set[str]().union(*(values for values in by_term if values is not None))


def _values(term: NodeTerm, key: str) -> frozenset[str] | None:
    """Return the values that a term allows for a label, None for any."""
    listed = [each for each in term.match_expressions or () if (each.key, each.operator) == (key, "In")]
    return frozenset(listed[0].values or ()) if listed else None


def _why_none(members: Sequence[ThinCache]) -> str:
    if not members:
        return "no cache of this name was observed"
    named = [f"{member.metadata.name}: {why_unusable(member)}" for member in members[:MAX_SHOWN]]
    return "; ".join(named)


def _shown(members: Sequence[tuple[ThinCache, Needs]]) -> str:
    """Return the labels of members for a message."""
    texts = (
        ", ".join(f"{quoted(key)}: {' or '.join(map(quoted, sorted(values)))}" for key, values in sorted(needs.items()))
        for _, needs in members
    )
    return "; or ".join(list(dict.fromkeys(texts))[:MAX_SHOWN])
