"""PodCliqueSet, PodClique and PodCliqueScalingGroup (grove.io/v1alpha1), reduced to the fields that GKM reads."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct, structs

from gkm.api.mnnvl_metadata import MnnvlMetadata, mnnvl_annotations
from gkm.api.pod_specs import PodSpec

API_VERSION = "grove.io/v1alpha1"
GROUP = "grove.io"

_Replicas = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class CliqueSpec(Struct, frozen=True, rename="camel"):
    """Pods of one kind: `replicas` times `pod_spec`."""

    replicas: _Replicas | None = None
    pod_spec: PodSpec = PodSpec()


class CliqueTemplate(Struct, frozen=True):
    """A template of PodCliques."""

    name: str
    annotations: dict[str, str] | None = None
    spec: CliqueSpec = CliqueSpec()

    def __post_init__(self) -> None:
        structs.force_setattr(self, "annotations", mnnvl_annotations(self.annotations))

    @property
    def replicas(self) -> int:
        """Return the number of pods; Grove's webhook replaces 0, and none, by 1."""
        return self.spec.replicas or 1


class ScalingGroupTemplate(Struct, frozen=True, rename="camel"):
    """A template of PodCliqueScalingGroups: cliques that scale together."""

    name: str
    clique_names: tuple[str, ...] = ()
    annotations: dict[str, str] | None = None
    replicas: _Replicas | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "annotations", mnnvl_annotations(self.annotations))


class SetTemplate(Struct, frozen=True, rename="camel"):
    """The template of one replica of a set."""

    cliques: Annotated[tuple[CliqueTemplate, ...], Meta(max_length=1024)] | None = None
    pod_clique_scaling_groups: Annotated[tuple[ScalingGroupTemplate, ...], Meta(max_length=1024)] | None = None


class SetSpec(Struct, frozen=True):
    """The spec of a set."""

    replicas: _Replicas | None = None
    template: SetTemplate = SetTemplate()


class PodCliqueSet(Struct, frozen=True):
    """A PodCliqueSet."""

    metadata: MnnvlMetadata
    spec: SetSpec = SetSpec()

    @property
    def cliques(self) -> tuple[CliqueTemplate, ...]:
        """Return the templates of its cliques."""
        return self.spec.template.cliques or ()

    @property
    def scaling_groups(self) -> tuple[ScalingGroupTemplate, ...]:
        """Return the templates of its scaling groups."""
        return self.spec.template.pod_clique_scaling_groups or ()

    @property
    def replicas(self) -> int:
        """Return the number of replicas; 0 without one, as the kind defines."""
        return self.spec.replicas or 0

    def scaling_group_of(self, clique: str) -> ScalingGroupTemplate | None:
        """Return the scaling group that a clique template belongs to."""
        return next((group for group in self.scaling_groups if clique in group.clique_names), None)

    def annotations_by_place(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield (place, annotations) of the set, its cliques and its scaling groups; the set comes first."""
        yield "the PodCliqueSet", self.metadata.annotations or {}
        for clique in self.cliques:
            yield f"clique {clique.name!r}", clique.annotations or {}
        for group in self.scaling_groups:
            yield f"scaling group {group.name!r}", group.annotations or {}


class PodClique(Struct, frozen=True):
    """A PodClique."""

    metadata: MnnvlMetadata
    spec: CliqueSpec = CliqueSpec()
