"""The ResourceClaimTemplate of a group's ComputeDomain, whose claim its pods use. Pure."""

from collections.abc import Sequence

import msgspec

from gkm.api.computedomains import GROUP, KIND, ComputeDomainSpec
from gkm.templates.values import Json


def compute_domains(objects: Sequence[Json]) -> list[Json]:
    """Return the ComputeDomains among rendered objects."""
    return [
        each for each in objects if each.get("kind") == KIND and str(each.get("apiVersion")).rpartition("/")[0] == GROUP
    ]


def claim_template_of(objects: Sequence[Json]) -> str | None:
    """Return the name of the ResourceClaimTemplate that the ComputeDomain among these objects names.

    None if the group has no domain.
    """
    for domain in compute_domains(objects):
        try:
            return msgspec.convert(domain.get("spec"), ComputeDomainSpec).channel.resource_claim_template.name or None
        except msgspec.ValidationError:
            return None
    return None
