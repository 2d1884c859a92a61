"""The mark of a ComputeDomain and of its claim template: how many living pods use it, and which. Pure.

ValidatingAdmissionPolicies refuse to delete an object whose mark is not 0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gkm.api.grammar import listed
from gkm.api.mnnvl_metadata import MAX_USED_BY, PODS_USING, USED_BY, MnnvlMetadata
from gkm.kube.resources import CLAIM_TEMPLATES, COMPUTEDOMAINS, Resource

from gkm_operator.computedomains.status.observed_domain import ObservedDomain
from gkm_operator.pods import WatchedPod

UNUSED = "0"
MAX_USERS = 5
"""Names of pods in USED_BY."""

Annotations = Mapping[str, str | None]
"""Annotations to write; None removes one."""
Target = tuple[Resource[Any], MnnvlMetadata]
"""An object that carries annotations."""


def mark(pods: Iterable[WatchedPod]) -> Annotations:
    """Return the mark for the living pods that use an object; terminating pods count until they are gone."""
    names = sorted(pod.metadata.name for pod in pods)
    return {PODS_USING: str(len(names)), USED_BY: listed(names, MAX_USERS)[:MAX_USED_BY] or None}


def must_protect(metadata: MnnvlMetadata, wanted: Annotations) -> bool:
    """Return whether pods use an object that is not protected yet: such a mark must not wait."""
    return is_used(wanted.get(PODS_USING)) and not is_used(metadata.annotation(PODS_USING))


def is_used(count: str | None) -> bool:
    """Return whether a value of PODS_USING protects an object, as the policies read it."""
    return count not in (None, UNUSED)


def targets(observed: ObservedDomain) -> Iterator[Target]:
    """Yield the objects that carry the mark of a domain.

    The claim template precedes: while its mark is not 0, NVIDIA's controller cannot tear a deleted domain down, and an
    update of the domain is what makes it try again.
    """
    if observed.template is not None and observed.serves:
        yield CLAIM_TEMPLATES, observed.template.metadata
    yield COMPUTEDOMAINS, observed.domain.metadata


def patch(target: Target, marks: Annotations, condition: Annotations) -> Annotations:
    """Return the annotations of an object that are out of date; only the domain has the condition.

    A claim template without a mark is as good as one with the mark 0, and costs no request.
    """
    resource, metadata = target
    if resource is CLAIM_TEMPLATES and metadata.annotation(PODS_USING) is None and not is_used(marks[PODS_USING]):
        return {}
    wanted = {**marks, **condition} if resource is COMPUTEDOMAINS else marks
    return {key: value for key, value in wanted.items() if metadata.annotation(key) != value}
