"""ComputeDomain (resource.nvidia.com/v1beta1), reduced to the fields that GKM reads.

`spec.channel.resourceClaimTemplate.name` is the field of every release of NVIDIA's driver; Grove's design document
prints `resourceClaimTemplateName`, which no release has (docs/about/differences.md).
"""

from typing import Annotated, Self

from msgspec import Meta, Struct, field, structs

from gkm.api.cliques import names_clique
from gkm.api.mnnvl_metadata import MAX_TEXT, PODS_USING, WRITER, WRITER_LABEL, MnnvlMetadata

GROUP = "resource.nvidia.com"
API_VERSION = f"{GROUP}/v1beta1"
KIND = "ComputeDomain"
DEFINITION = f"computedomains.{GROUP}"
"""The name of the CustomResourceDefinition."""
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
"""The device class of a workload's channel to its ComputeDomain."""


class TemplateName(Struct, frozen=True, gc=False):
    """The name of the ResourceClaimTemplate that NVIDIA's controller makes for the workload."""

    name: str = ""


class Channel(Struct, frozen=True, rename="camel", gc=False):
    """How pods join a ComputeDomain: by claims from a ResourceClaimTemplate."""

    resource_claim_template: TemplateName = TemplateName()


class ComputeDomainSpec(Struct, frozen=True, gc=False):
    """The spec of a ComputeDomain; immutable."""

    channel: Channel = Channel()


class DomainNode(Struct, frozen=True, gc=False):
    """A node that joined a ComputeDomain. A node without a fabric has the clique "" and the index -1."""

    name: str
    clique_id: str = field(default="", name="cliqueID")
    index: int = 0
    status: str = ""

    @property
    def isolated(self) -> bool:
        """Return whether the node has no NVLink connection to the other nodes of the domain."""
        return not names_clique(self.clique_id) or self.index < 0

    @property
    def ready(self) -> bool:
        """Return whether the IMEX daemon of the node is ready and the node is in a clique."""
        return self.status == "Ready" and not self.isolated


class ComputeDomainStatus(Struct, frozen=True):
    """The status of a ComputeDomain. Its `status` is Ready as soon as the domain exists, so GKM counts `nodes`."""

    status: str = ""
    nodes: Annotated[tuple[DomainNode, ...], Meta(max_length=4096)] | None = None


class ComputeDomain(Struct, frozen=True):
    """A ComputeDomain. NVIDIA's controller tears it down once it is being deleted, with any finalizers."""

    metadata: MnnvlMetadata
    spec: ComputeDomainSpec = ComputeDomainSpec()
    status: ComputeDomainStatus = ComputeDomainStatus()

    def outline(self, why: str) -> Self:
        """Return a reduced copy of a ComputeDomain that is too large; a template name that cannot exist is left out."""
        spec = self.spec if len(self.template) <= MAX_TEXT else ComputeDomainSpec()
        return structs.replace(self, metadata=self.metadata.outline(why), spec=spec)

    @property
    def template(self) -> str:
        """Return the name of the ResourceClaimTemplate of the domain."""
        return self.spec.channel.resource_claim_template.name

    @property
    def written_by_gkm(self) -> bool:
        """Return whether GKM created this ComputeDomain."""
        return self.metadata.label(WRITER_LABEL) == WRITER

    @property
    def in_use(self) -> bool:
        """Return whether the annotation on the ComputeDomain says that pods use it."""
        return self.metadata.annotation(PODS_USING) not in (None, "0")
