"""The labels that GKM owns on a Node: their desired values, and the patch that sets them. Pure.

GKM owns three keys below gkm.io/ and every key below cache.gkm.io/. A patch never contains another key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gkm.api.node_labels import CACHE_PREFIX, NAME, cache_label
from gkm.hoststate.names import CacheRef

from gkm_agent.fabric.nvlink import FabricVerdict

DOMAIN, FLAVOR, HEALTH = "gkm.io/fabric-domain", "gkm.io/gpu-flavor", "gkm.io/fabric-health"
MAX_CACHES = 512
"""Limit of cache labels on one Node: the kubelet and every scheduler keep Nodes in memory."""
DIGITS = 12

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WantedLabels:
    """The labels to set, and a sentence for each skipped label.

    `caches` is False while the ready caches are unknown.
    """

    labels: Labels
    skipped: tuple[str, ...] = ()
    caches: bool = True


def wanted(verdict: FabricVerdict, ready: Mapping[CacheRef, str] | None) -> WantedLabels:
    """Return the labels of a node; `ready` are its ready caches with their digests, None while they are unknown."""
    found = {HEALTH: str(verdict.health), DOMAIN: verdict.domain, FLAVOR: verdict.flavor}
    skipped = [
        f"{key}: {value[:80]!r} is not a valid label value" for key, value in found.items() if is_invalid_value(value)
    ]
    labels = {key: value for key, value in found.items() if value and not is_invalid_value(value)}
    count = 0
    for ref, digest in sorted((ready or {}).items(), key=lambda item: str(item[0])):
        key = cache_label(ref.namespace, ref.name)
        if key is None:
            skipped.append(f"{ref}: its namespace and name have more than 63 characters, too many for a label key")
        elif count == MAX_CACHES:
            skipped.append(f"{ref}: {MAX_CACHES} other caches have labels")
        else:
            count += 1
            labels[key] = digest.removeprefix("sha256:")[:DIGITS]
    return WantedLabels(labels, tuple(skipped), ready is not None)


def label_patch(current: Labels, wanted: WantedLabels) -> dict[str, str | None]:
    """Return the merge patch that turns the `current` labels into the wanted ones; None removes a key."""
    changed: dict[str, str | None] = {
        key: None
        for key in current
        if key not in wanted.labels and (_of_fabric(key) or (wanted.caches and key.startswith(CACHE_PREFIX)))
    }
    changed |= {key: value for key, value in wanted.labels.items() if current.get(key) != value}
    return changed


def is_invalid_value(value: str) -> bool:
    """Return whether a text is not a valid label value."""
    return bool(value) and NAME.fullmatch(value) is None


def _of_fabric(key: str) -> bool:
    return key in {DOMAIN, FLAVOR, HEALTH}
