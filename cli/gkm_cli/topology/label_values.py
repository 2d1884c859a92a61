"""Labels of nodes as values, and findings about them. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gkm.api.cliques import names_clique
from gkm.topology.quarantine import QuarantineReason
from msgspec import Struct

from gkm_cli.topology.mending import Mend

VOLCANO = "Volcano's discovery by labels"
KUEUE = "Kueue"
KAI = "KAI"


class LabelSeverity(StrEnum):
    """What a finding means."""

    PROBLEM = "problem"
    WARNING = "warning"


class LabelReason(StrEnum):
    """Reasons of findings, beside those of quarantine."""

    EMPTY_VALUE = "EmptyValue"
    PLACEHOLDER = "Placeholder"
    DIFFERS_IN_CASE = "DiffersInCase"
    SEVERAL_PARENTS = "SeveralParents"
    FLAVOR_MISSING = "FlavorMissing"
    LABEL_MISSING = "LabelMissing"
    KEYS_DISAGREE = "KeysDisagree"
    NO_PLAIN_NAME = "NoPlainName"
    HOSTNAME_MISSING = "HostnameMissing"
    HOSTNAME_SHARED = "HostnameShared"
    LABELS_UNREAD = "LabelsUnread"
    LEVEL_WITHOUT_LABELS = "LevelWithoutLabels"
    GPUS_NOT_COUNTED = "GPUsNotCounted"


MISREAD_BY: Mapping[str, tuple[str, ...]] = {
    QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS: (VOLCANO,),
    QuarantineReason.RACK_IN_SEVERAL_BLOCKS: (VOLCANO,),
    QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS: (VOLCANO,),
    LabelReason.EMPTY_VALUE: (KUEUE,),
    LabelReason.PLACEHOLDER: (VOLCANO, KUEUE, KAI),
    LabelReason.DIFFERS_IN_CASE: (VOLCANO, KUEUE, KAI),
    LabelReason.SEVERAL_PARENTS: (VOLCANO,),
    LabelReason.LABEL_MISSING: (KUEUE, KAI),
    LabelReason.KEYS_DISAGREE: (VOLCANO, KUEUE, KAI),
    LabelReason.HOSTNAME_MISSING: (KUEUE, KAI),
    LabelReason.HOSTNAME_SHARED: (KUEUE, KAI),
}
"""The schedulers that misread labels, besides GKM."""


class LabelFault(NamedTuple):
    """A fault of the labels of one node."""

    reason: str
    node: str
    message: str
    mends: tuple[Mend, ...] = ()
    severity: LabelSeverity = LabelSeverity.PROBLEM


class LabelFinding(Struct, frozen=True, rename="camel"):
    """A fault of the labels of some nodes, as `-o json` prints it."""

    reason: str
    severity: LabelSeverity
    message: str
    nodes: tuple[str, ...]
    misread_by: tuple[str, ...] = ()
    corrections: tuple[Mend, ...] = ()


class Axis(NamedTuple):
    """A property of nodes with the keys of its labels: a level of the tree, a rack that is no rack, or the flavor."""

    name: str
    keys: tuple[str, ...]
    is_level: bool = True
    is_place: bool = True
    is_scoped: bool = False
    """Names are unique within their parent only, and configured so."""
    is_of_cliques: bool = False
    is_chosen: bool = False
    """People have configured the level, and expect labels of it."""

    def counts(self, value: str) -> bool:
        """Return whether GKM reads this value; else it takes the label as missing."""
        return names_clique(value) if self.is_of_cliques else bool(value)


class Labeled(NamedTuple):
    """A node: its labels, and for each axis the key that counts with its value."""

    name: str
    labels: Mapping[str, str]
    has_gpus: bool
    values: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, labels: Mapping[str, str], axes: Sequence[Axis], *, has_gpus: bool) -> "Labeled":
        """Return a node with the values that count."""
        values = [
            next(((key, value) for key in axis.keys if axis.counts(value := labels.get(key, ""))), ("", ""))
            for axis in axes
        ]
        return cls(name, labels, has_gpus, tuple(values))
