"""The `Topology` objects of Kueue and KAI: the labels of the levels, from the widest to the closest. Pure.

They have all configured levels, whether or not a level has domains: neither project lets all levels change.
"""

from typing import Any, Literal

from gkm.api.topology_settings import Topology
from gkm.topology.trees.labels import PREFIX

_HOSTNAME = "kubernetes.io/hostname"


def kueue(settings: Topology, version: Literal["v1beta1", "v1beta2"] = "v1beta1") -> dict[str, Any]:
    """Return the Topology of Kueue with the configured name."""
    return _topology(f"kueue.x-k8s.io/{version}", settings.kueue, settings)


def kai(settings: Topology) -> dict[str, Any]:
    """Return the Topology of KAI with the configured name."""
    return _topology("kai.scheduler/v1alpha1", settings.kai, settings)


def _topology(api_version: str, name: str, settings: Topology) -> dict[str, Any]:
    keys = [*(PREFIX + level.name for level in reversed(settings.levels)), _HOSTNAME]
    return {
        "apiVersion": api_version,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": key} for key in keys]},
    }
