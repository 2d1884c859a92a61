"""JSON patches (RFC 6902) that add entries to a map, or the affinity that puts a domain into one fabric domain.

Pure; must never remove or replace an existing value.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.network_settings import Network

from gkm_operator.admission.domains.requests import AffinityTerm, PodAffinity, ReviewedPodSpec
from gkm_operator.mnnvl.injection import Operation

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_LARGEST_WEIGHT = 100


def add_entries(at: str, values: Mapping[str, str], *, exists: bool) -> Iterator[Operation]:
    """Yield the JSON patch operations that add entries to a map at the JSON pointer `at`.

    `exists`: the map is there.
    """
    if values and not exists:
        yield {"op": "add", "path": at, "value": dict(values)}
    elif values:
        for key, value in values.items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield {"op": "add", "path": f"{at}/{escaped}", "value": value}


def append_entries(at: str, entries: Sequence[Mapping[str, Any]], *, exists: bool) -> Iterator[Operation]:
    """Yield the operations that append to a list, which is absent or null unless it `exists`."""
    if entries and not exists:
        yield {"op": "add", "path": at, "value": list(entries)}
    elif entries:
        for entry in entries:
            yield {"op": "add", "path": f"{at}/-", "value": entry}


def place(spec: ReviewedPodSpec, domain: str, at: str, settings: Network, label: str = DOMAIN_LABEL) -> list[Operation]:
    """Return the patch that adds a pod affinity to the pods with a ComputeDomain's label; empty if they have it.

    `at` is the JSON pointer of the pod specification. The scheduler lets the first pod of a required affinity pass,
    because the pod matches its own term.
    """
    if settings.placement == "none":
        return []
    term: dict[str, Any] = {"labelSelector": {"matchLabels": {label: domain}}, "topologyKey": settings.placement_label}
    pods = spec.affinity.pod_affinity if spec.affinity else None
    if settings.placement == "required":
        name, entry, is_new = REQUIRED, term, pods is None or pods.required is None
    else:
        name, entry = PREFERRED, {"weight": _LARGEST_WEIGHT, "podAffinityTerm": term}
        is_new = pods is None or pods.preferred is None
    if any(_is_ours(found, (label, domain), settings) for found in _terms(pods)):
        return []
    if spec.affinity is None:
        return [_add(f"{at}/affinity", {"podAffinity": {name: [entry]}})]
    if pods is None:
        return [_add(f"{at}/affinity/podAffinity", {name: [entry]})]
    return list(append_entries(f"{at}/affinity/podAffinity/{name}", [entry], exists=not is_new))


def _terms(pods: PodAffinity | None) -> list[AffinityTerm]:
    if pods is None:
        return []
    return [*(pods.required or ()), *(each.pod_affinity_term for each in pods.preferred or ())]


def _is_ours(term: AffinityTerm, label: tuple[str, str], settings: Network) -> bool:
    selector = term.label_selector
    return (
        term.topology_key == settings.placement_label
        and selector is not None
        and label in (selector.match_labels or {}).items()
    )


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
