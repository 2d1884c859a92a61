"""Add a scheduling gate to pods of a Run that request GPUs, so that they wait for the Run's plan. Pure.

Without `packing.podGates` no controller removes a gate, so none is added. Must never refuse a pod. A pod that says
itself on which node it starts gets no gate.
"""

from typing import Annotated

from gkm.api.pod_specs import PodSpec
from gkm.api.runs import GATE, RUN_LABEL
from msgspec import Meta, Struct

from gkm_operator.admission.domains.patches import append_entries
from gkm_operator.admission.domains.requests import DomainRequest, LabeledMetadata
from gkm_operator.admission.pods.objects import MAX_ENTRIES, Affinity, NodeTerm
from gkm_operator.admission.review import ADMITTED, ReviewResponse
from gkm_operator.mnnvl.gpu_requests import GPURequests

_HOSTNAME = "kubernetes.io/hostname"


class Gate(Struct, frozen=True):
    """An entry of a pod's schedulingGates."""

    name: str = ""


class GatedSpec(PodSpec, frozen=True, rename="camel"):
    """A pod specification with its scheduling gates, and the fields that choose a node."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    scheduling_gates: Annotated[tuple[Gate, ...], Meta(max_length=MAX_ENTRIES)] | None = None

    @property
    def names_nodes(self) -> bool:
        """Return whether the author of the pod has chosen its node by name: nodeName, selector, or affinity."""
        nodes = self.affinity.node_affinity if self.affinity else None
        terms = (nodes.required.node_selector_terms if nodes and nodes.required else None) or ()
        return bool(self.node_name) or _HOSTNAME in (self.node_selector or {}) or any(map(_names_nodes, terms))


def _names_nodes(term: NodeTerm) -> bool:
    # metadata.name is the only field that terms know.
    return bool(term.match_fields) or any(each.key == _HOSTNAME for each in term.match_expressions or ())


class GatedPod(Struct, frozen=True):
    """A pod in an admission request, reduced to the fields that decide on its scheduling gate."""

    metadata: LabeledMetadata
    spec: GatedSpec = GatedSpec()


def review_gated_pod(
    _view: object, request: DomainRequest[GatedPod], *, gpus: GPURequests, enabled: bool
) -> ReviewResponse:
    """Add the scheduling gate to a pod of a Run if `packing.podGates` is `enabled`; always admit.

    A pod with any claim may use GPUs.
    """
    spec, labels = request.object.spec, request.object.metadata.labels or {}
    if not enabled or request.operation != "CREATE" or not labels.get(RUN_LABEL) or spec.names_nodes:
        return ADMITTED
    gates = spec.scheduling_gates
    if any(gate.name == GATE for gate in gates or ()) or not (spec.claims or gpus.any(spec)):
        return ADMITTED
    patch = append_entries("/spec/schedulingGates", [{"name": GATE}], exists=gates is not None)
    return ReviewResponse(allowed=True, patch=tuple(patch))
