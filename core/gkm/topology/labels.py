"""The topology labels of a node: of several configured keys, the first that the node has counts. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gkm.api.cliques import names_clique
from gkm.api.topology_presets import NO_TOPOLOGY
from gkm.api.topology_settings import Topology, TopologyLabels

# Kubernetes, "Labels and Selectors", syntax. Lists may come from files, which no API server has validated.
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


class MalformedLabel(ValueError):
    """A label has a value that violates the syntax of labels; the message has key and value."""


class Claims(NamedTuple):
    """The values of the labels of one node, "" without a label. The flavor is in lower case."""

    region: str
    cluster: str
    domain: str
    block: str
    rack: str
    flavor: str
    health: str


def read(labels: Mapping[str, str], settings: Topology) -> Claims:
    """Return the values of labels; region and cluster default to the configured ones.

    Raises:
        MalformedLabel: a value that counts violates the syntax of labels.
    """
    keys = settings.labels
    return Claims(
        region=first_value(labels, keys.region) or settings.defaults.region,
        cluster=first_value(labels, keys.cluster) or settings.defaults.cluster,
        domain=first_clique(labels, keys.domain),
        block=first_value(labels, keys.block),
        rack=first_value(labels, keys.rack),
        # The agent writes nvidia-h100-80gb-hbm3, NVIDIA's feature discovery NVIDIA-H100-80GB-HBM3.
        flavor=flavor(first_value(labels, keys.flavor)),
        health=first_value(labels, keys.health),
    )


def reader(settings: Topology) -> Callable[[Mapping[str, str]], Claims]:
    """Return `read` with these settings and a cache: thousands of nodes have the same few hundred sets of labels.

    The function raises MalformedLabel as `read` does. Its cache is unbounded, so use it for the nodes of one snapshot.
    """
    keys = _label_keys(settings.labels)
    cache: dict[tuple[str | None, ...], Claims] = {}

    def cached(labels: Mapping[str, str]) -> Claims:
        values = tuple(map(labels.get, keys))
        claims = cache.get(values)
        if claims is None:
            claims = cache[values] = read(labels, settings)
        return claims

    return cached


def flavor(value: str) -> str:
    """Return a flavor in normalized spelling, which comparisons use."""
    return value.lower()


def named_flavor(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the flavor that the first label that is not empty names, in normalized spelling; "" without one."""
    return next((flavor(value) for key in keys if (value := labels.get(key))), "")


def relevant_labels(labels: Mapping[str, str], keys: TopologyLabels) -> dict[str, str]:
    """Return the topology labels of a node, to show a person who looks for a wrong one."""
    return {key: labels[key] for key in _label_keys(keys) if key in labels}


def _label_keys(keys: TopologyLabels) -> tuple[str, ...]:
    return (*keys.region, *keys.cluster, *keys.domain, *keys.block, *keys.rack, *keys.flavor, *keys.health)


def first_value(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the value of the first label that is not empty, and does not stand for none; "" without one.

    Raises:
        MalformedLabel: that value violates the syntax of labels.
    """
    return next(_values(labels, keys), "")


def first_clique(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the value of the first label that names an NVLink clique, "" without one (gkm.api.cliques).

    Raises:
        MalformedLabel: that value, or one before it, violates the syntax of labels.
    """
    return next(filter(names_clique, _values(labels, keys)), "")


def _values(labels: Mapping[str, str], keys: Sequence[str]) -> Iterator[str]:
    for key in keys:
        value = labels.get(key)
        if value and value != NO_TOPOLOGY:  # Kubernetes allows empty values
            if not _is_label_value(value):
                raise MalformedLabel(f"label {key} is {value[:63]!a}, which is no value of a label")
            yield value


@lru_cache(maxsize=1 << 16)  # few values, each on many nodes
def _is_label_value(value: str) -> bool:
    return _VALUE.fullmatch(value) is not None
