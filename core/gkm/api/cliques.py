"""The names of NVLink cliques: one rule for NVML, labels of Nodes, files and providers. Pure.

GPUs outside of a fabric have names as well: NVML reports an all-zero cluster UUID, feature discovery of NVIDIA's device
plugin 0.17.0 makes the label `00000000-0000-0000-0000-000000000000.0` of it, and others write `N.A` or `0`. A scheduler
would take all nodes with such a name for one domain, and a job across them hangs.
"""

import re

CLIQUE_LEVEL = "nvlink"
"""The level of the tree whose domains are cliques."""
CLIQUE_LABEL = "nvidia.com/gpu.clique"

PLACEHOLDERS = ("unknown", "none", "null", "nil", "undefined", "unset", "tbd", "todo", "na", "n-a", "n.a")
"""Placeholders for a missing value, in lower case."""

NO_CLIQUE = f"^([0-]*|n/a|{'|'.join(PLACEHOLDERS).replace('.', '[.]')})([.][0-9]*)?$"
"""Names that no clique has, in lower case: zeros or a placeholder, also with the number of a clique behind it.

deploy/chart/gkm/templates/topology-hygiene has it and the placeholders too."""

_NO_CLIQUE = re.compile(NO_CLIQUE)


def names_clique(name: str) -> bool:
    """Return whether a text names an NVLink clique or cluster, and is no placeholder such as `N.A` or zeros."""
    return _NO_CLIQUE.match(name.strip().lower()) is None
