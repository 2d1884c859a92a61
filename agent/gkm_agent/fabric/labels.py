"""The labels of a Node that are ours: what they should be, and the patch that makes them so. Pure.

Ours are three keys below gkm.io/ and everything below cache.gkm.io/; no other key ever stands in a patch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gkm.hoststate.names import CacheRef

from gkm_agent.fabric.nvlink import FabricVerdict

DOMAIN, FLAVOUR, HEALTH = "gkm.io/fabric-domain", "gkm.io/gpu-flavor", "gkm.io/fabric-health"
CACHE_PREFIX = "cache.gkm.io/"
CLUSTER_SCOPE = "cluster_scoped"
"""Stands for the namespace of a ClusterGKMCache: no namespace can be called so, and a label's key can."""
MAX_CACHES = 512
"""Labels of caches on one Node; a kubelet and every scheduler hold all Nodes in memory."""
DIGITS = 12

# Names of keys, and values (Kubernetes, "Labels and Selectors", syntax): the same but that a value may be empty.
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WantedLabels:
    """What our labels should be, and why something has none. `caches` False: nobody knows yet which are ready."""

    labels: Labels
    skipped: tuple[str, ...] = ()
    caches: bool = True


def wanted(verdict: FabricVerdict, ready: Mapping[CacheRef, str] | None) -> WantedLabels:
    """Return the labels of a node; `ready` are its ready caches with their digests, None while that is not known."""
    found = {HEALTH: str(verdict.health), DOMAIN: verdict.domain, FLAVOUR: verdict.flavour}
    skipped = [
        f"{key}: {value[:80]!r} cannot be the value of a label"
        for key, value in found.items()
        if is_invalid_value(value)
    ]
    labels = {key: value for key, value in found.items() if value and not is_invalid_value(value)}
    count = 0
    for ref, digest in sorted((ready or {}).items(), key=lambda item: str(item[0])):
        key = cache_key(ref)
        if key is None:
            skipped.append(f"{ref}: its namespace and name have more than 63 characters, so no label is named after it")
        elif count == MAX_CACHES:
            skipped.append(f"{ref}: {MAX_CACHES} caches have labels already")
        else:
            count += 1
            labels[key] = digest.removeprefix("sha256:")[:DIGITS]
    return WantedLabels(labels, tuple(skipped), ready is not None)


def cache_key(ref: CacheRef) -> str | None:
    """Return the label of a cache, None where its name cannot be one: the namespace ends at the first dot."""
    name = f"{ref.namespace or CLUSTER_SCOPE}.{ref.name}"
    return CACHE_PREFIX + name if _NAME.fullmatch(name) else None


def label_patch(there: Labels, wanted: WantedLabels) -> dict[str, str | None]:
    """Return what to write and (None) to remove so that `there` says what is wanted; only keys of ours."""
    changed: dict[str, str | None] = {
        key: None
        for key in there
        if key not in wanted.labels and (_of_fabric(key) or (wanted.caches and key.startswith(CACHE_PREFIX)))
    }
    changed |= {key: value for key, value in wanted.labels.items() if there.get(key) != value}
    return changed


def is_invalid_value(value: str) -> bool:
    """Return whether a text cannot be the value of a label."""
    return bool(value) and _NAME.fullmatch(value) is None


def _of_fabric(key: str) -> bool:
    return key in {DOMAIN, FLAVOUR, HEALTH}
