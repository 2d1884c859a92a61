"""Parts of GKM that an administrator may leave out, and how messages say to install one.

A part has two names: a value of the Helm chart, and a directory of the manifests that are rendered from it. Messages
name both, for a user of the chart, of a release's manifests, and of a clone.
"""

from enum import StrEnum


class Feature(StrEnum):
    """An optional feature; the value is its name below `features` in the Helm chart."""

    DOMAINS = "domains"
    TASK_GROUPS = "taskGroups"
    TOPOLOGY = "topology"
    TOPOLOGY_LABELS = "topologyLabels"
    TOPOLOGY_HYGIENE = "topologyHygiene"
    POD_CACHES = "podCaches"
    POD_GATES = "podGates"
    KSERVE = "kserve"
    FABRIC_CONDITIONS = "fabricConditions"
    FABRIC_TAINTS = "fabricTaints"

    @property
    def component(self) -> str:
        """Return the kustomize directory of the feature, relative to the manifests."""
        words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in self.value)
        return f"components/{words}"

    @property
    def binding(self) -> str:
        """Return the ClusterRoleBinding of the feature: of the controllers, or of admission if these have no part."""
        words = self.component.rpartition("/")[2]
        return f"gkm-{'admission' if self is Feature.POD_CACHES else 'controllers'}-{words}"


_MANIFESTS = "of the release's manifests (in a clone, make manifests writes them to build/deploy)"
INSTALL = f"install the Helm chart, or apply base {_MANIFESTS}"
RESTORE_RIGHTS = f"upgrade the Helm chart, or apply base/controllers.yaml {_MANIFESTS}: both have the rule"


def install(feature: Feature) -> str:
    """Return the instruction that installs a feature with its rights, for the end of a message."""
    return f"set features.{feature}=true in the Helm chart, or apply {feature.component} {_MANIFESTS}"
