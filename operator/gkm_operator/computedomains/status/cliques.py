"""PodCliques whose pods have claims, reduced to how many pods of which claim templates there should be."""

from copy import copy
from typing import Self

from gkm.api.grove import API_VERSION, CliqueSpec
from gkm.api.mnnvl_metadata import MnnvlMetadata
from gkm.kube.api import Key
from gkm.kube.resources import Resource
from msgspec import Struct, structs

from gkm_operator.pods import claim_templates

_NO_SPEC = CliqueSpec()


class ClaimingClique(Struct, frozen=True):
    """A PodClique. `spec` is empty once it is decoded."""

    metadata: MnnvlMetadata
    spec: CliqueSpec = _NO_SPEC
    replicas: int = 0
    """The pods that it should have; Grove reads no number as 1."""
    templates: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, value in (
            ("replicas", 1 if self.spec.replicas is None else self.spec.replicas),
            ("templates", claim_templates(self.spec.pod_spec.claims)),
            ("spec", _NO_SPEC),
        ):
            structs.force_setattr(self, name, value)

    def outline(self, why: str) -> Self:
        """Return it with less metadata."""
        outlined = copy(self)  # not made anew from the spec, which decoding has emptied
        structs.force_setattr(outlined, "metadata", self.metadata.outline(why))
        return outlined

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def template_keys(self) -> list[Key]:
        """Return namespace and name of its claim templates."""
        return [(self.metadata.namespace, template) for template in self.templates]


CLAIMING_CLIQUES = Resource(API_VERSION, "PodClique", "podcliques", namespaced=True, type=ClaimingClique)
