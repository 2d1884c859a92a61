"""What a node says of itself by labels: of the keys that are configured, the first that it has counts. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gkm.api.topology_settings import Topology, TopologyLabels

# Kubernetes, "Labels and Selectors", syntax. Lists may come from files, where nobody has checked it.
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


class MalformedLabel(ValueError):
    """A label has a value that no label can have; the message names both."""


class Claims(NamedTuple):
    """What the labels of one node say; "" where they say nothing. Of the flavor, lower case is compared."""

    region: str
    cluster: str
    domain: str
    block: str
    rack: str
    flavor: str
    health: str


def read(labels: Mapping[str, str], settings: Topology) -> Claims:
    """Return what labels say, with region and cluster as configured where they say nothing.

    Raises:
        Malformed: a value that counts cannot be one of a label.
    """
    keys = settings.labels
    return Claims(
        region=_first(labels, keys.region) or settings.defaults.region,
        cluster=_first(labels, keys.cluster) or settings.defaults.cluster,
        domain=_first(labels, keys.domain),
        block=_first(labels, keys.block),
        rack=_first(labels, keys.rack),
        # The agent writes nvidia-h100-80gb-hbm3, NVIDIA's feature discovery NVIDIA-H100-80GB-HBM3.
        flavor=flavor(_first(labels, keys.flavor)),
        health=_first(labels, keys.health),
    )


def reader(settings: Topology) -> Callable[[Mapping[str, str]], Claims]:
    """Return `read` with these settings, for many nodes: thousands say the same few hundred things.

    What it returns raises Malformed as `read` does. It remembers what it read, and is for the nodes of one snapshot.
    """
    keys = _label_keys(settings.labels)
    known: dict[tuple[str | None, ...], Claims] = {}

    def cached(labels: Mapping[str, str]) -> Claims:
        values = tuple(map(labels.get, keys))
        claims = known.get(values)
        if claims is None:
            claims = known[values] = read(labels, settings)
        return claims

    return cached


def flavor(value: str) -> str:
    """Return a flavor in the spelling that is compared."""
    return value.lower()


def named_flavor(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the flavor that the first label that is not empty names, in normalized spelling; "" without one."""
    return next((flavor(value) for key in keys if (value := labels.get(key))), "")


def relevant_labels(labels: Mapping[str, str], keys: TopologyLabels) -> dict[str, str]:
    """Return those of a node's labels that are read, for a person who looks for the wrong one."""
    return {key: labels[key] for key in _label_keys(keys) if key in labels}


def _label_keys(keys: TopologyLabels) -> tuple[str, ...]:
    return (*keys.region, *keys.cluster, *keys.domain, *keys.block, *keys.rack, *keys.flavor, *keys.health)


def _first(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    for key in keys:
        value = labels.get(key)
        if value:  # an empty one is allowed, and says nothing
            if not _is_label_value(value):
                raise MalformedLabel(f"label {key} is {value[:63]!a}, which no label can be")
            return value
    return ""


@lru_cache(maxsize=1 << 16)  # few values, each on many nodes
def _is_label_value(value: str) -> bool:
    return _VALUE.fullmatch(value) is not None
