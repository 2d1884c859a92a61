"""PodCliqueSet, PodClique and PodCliqueScalingGroup (grove.io/v1alpha1), reduced to the fields that GKM reads."""

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, Self

from msgspec import Meta, Struct, structs

from gkm.api.mnnvl_metadata import MnnvlMetadata, mnnvl_annotations
from gkm.api.pod_specs import PodSpec
from gkm.api.resource_claims import TemplateSpec

API_VERSION = "grove.io/v1alpha1"
GROUP = "grove.io"

_Replicas = Annotated[int, Meta(ge=0, le=2**31 - 1)]


_Names = Annotated[tuple[str, ...], Meta(max_length=2048)]


class SharingFilter(Struct, frozen=True, rename="camel"):
    """The cliques and scaling groups of a PodCliqueSet that a shared claim reaches."""

    child_clique_names: _Names | None = None
    child_scaling_group_names: _Names | None = None


class SharedClaim(Struct, frozen=True):
    """A ResourceClaim that Grove makes from a template, and adds to every container of the pods that it reaches.

    The template is one of the set with this name, or else an object of `namespace`; "" is the namespace of the set. A
    claim of a set or a scaling group may have a filter; without, it reaches all of their pods.
    """

    name: str
    namespace: str = ""
    filter: SharingFilter | None = None


_Sharing = Annotated[tuple[SharedClaim, ...], Meta(max_length=256)]


class CliqueSpec(Struct, frozen=True, rename="camel"):
    """The spec of a PodClique: pods of one kind, `replicas` times `pod_spec`."""

    replicas: _Replicas | None = None
    pod_spec: PodSpec = PodSpec()


class CliqueTemplate(Struct, frozen=True, rename="camel"):
    """A template of PodCliques in a PodCliqueSet."""

    name: str
    annotations: dict[str, str] | None = None
    spec: CliqueSpec = CliqueSpec()
    resource_sharing: _Sharing | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "annotations", mnnvl_annotations(self.annotations))

    @property
    def replicas(self) -> int:
        """Return the number of pods of the clique; 0 and a missing number become 1, as in Grove's webhook."""
        return self.spec.replicas or 1


class ScalingGroupTemplate(Struct, frozen=True, rename="camel"):
    """A template of PodCliqueScalingGroups in a PodCliqueSet: cliques that scale together."""

    name: str
    clique_names: tuple[str, ...] = ()
    annotations: dict[str, str] | None = None
    replicas: _Replicas | None = None
    resource_sharing: _Sharing | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "annotations", mnnvl_annotations(self.annotations))


class InlineClaimTemplate(Struct, frozen=True, rename="camel"):
    """A claim template in a PodCliqueSet, from which Grove makes ResourceClaims that its pods share."""

    name: str = ""
    template_spec: TemplateSpec = TemplateSpec()


class AnnotatedPart(NamedTuple):
    """A part of a PodCliqueSet that may have annotations: the set itself, a clique or a scaling group."""

    kind: str
    name: str
    annotations: Mapping[str, str]


class SetTemplate(Struct, frozen=True, rename="camel"):
    """The template of one replica of a PodCliqueSet."""

    cliques: Annotated[tuple[CliqueTemplate, ...], Meta(max_length=1024)] | None = None
    pod_clique_scaling_groups: Annotated[tuple[ScalingGroupTemplate, ...], Meta(max_length=1024)] | None = None
    resource_claim_templates: Annotated[tuple[InlineClaimTemplate, ...], Meta(max_length=256)] | None = None
    resource_sharing: _Sharing | None = None


class SetSpec(Struct, frozen=True):
    """The spec of a PodCliqueSet."""

    replicas: _Replicas | None = None
    template: SetTemplate = SetTemplate()


class PodCliqueSet(Struct, frozen=True):
    """A PodCliqueSet, reduced to the fields that GKM reads."""

    metadata: MnnvlMetadata
    spec: SetSpec = SetSpec()

    def outline(self, why: str) -> Self:
        """Return a reduced copy, without its template, of a set that is too large."""
        return structs.replace(self, metadata=self.metadata.outline(why), spec=SetSpec(self.spec.replicas))

    @property
    def cliques(self) -> tuple[CliqueTemplate, ...]:
        """Return the templates of the set's cliques."""
        return self.spec.template.cliques or ()

    @property
    def scaling_groups(self) -> tuple[ScalingGroupTemplate, ...]:
        """Return the templates of the set's scaling groups."""
        return self.spec.template.pod_clique_scaling_groups or ()

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the set; 0 if the field is missing."""
        return self.spec.replicas or 0

    def shared_claims(self) -> Iterator[SharedClaim]:
        """Yield the claims that the set, its scaling groups and its cliques share among pods."""
        yield from self.spec.template.resource_sharing or ()
        for group in self.scaling_groups:
            yield from group.resource_sharing or ()
        for clique in self.cliques:
            yield from clique.resource_sharing or ()

    def memberships(self) -> Iterator[tuple[CliqueTemplate, ScalingGroupTemplate | None]]:
        """Yield each clique template of the set with its scaling group; None for a standalone clique.

        A template that several scaling groups list is yielded with each, although Grove's webhook refuses that.
        """
        by_clique: dict[str, list[ScalingGroupTemplate]] = {}
        for group in self.scaling_groups:
            for name in set(group.clique_names):
                by_clique.setdefault(name, []).append(group)
        for clique in self.cliques:
            for scaling_group in by_clique.get(clique.name) or (None,):
                yield clique, scaling_group

    def parts(self) -> Iterator[AnnotatedPart]:
        """Yield the annotated parts of the set: the set, its cliques and its scaling groups, in this order."""
        yield AnnotatedPart("PodCliqueSet", "", self.metadata.annotations or {})
        for clique in self.cliques:
            yield AnnotatedPart("clique", clique.name, clique.annotations or {})
        for group in self.scaling_groups:
            yield AnnotatedPart("scaling group", group.name, group.annotations or {})


class PodClique(Struct, frozen=True):
    """A PodClique, reduced to the fields that GKM reads."""

    metadata: MnnvlMetadata
    spec: CliqueSpec = CliqueSpec()
