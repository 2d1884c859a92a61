"""Decisions about PodCliqueSets: the annotation that enrols one by default, and what is refused or warned of.

The rules of the annotations are in gkm_operator.mnnvl.dialect. Warnings never refuse.
"""

from collections.abc import Iterator, Sequence

from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.network_settings import Network

from gkm_operator.admission.domains import fit
from gkm_operator.admission.domains.patches import add_entries
from gkm_operator.admission.domains.requests import Request, ReviewedSet
from gkm_operator.admission.domains.view import View, ViewUnavailable
from gkm_operator.admission.review import ReviewResponse
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.naming import domain_name
from gkm_operator.mnnvl.required import MAX_DOMAINS, required_groups

ADMITTED = ReviewResponse(allowed=True)
_SHOWN_PROBLEMS = 4


class SetDefaults:
    """Adds `grove.io/auto-mnnvl: enabled` to new sets that request GPUs and have no annotation of either dialect."""

    def __init__(self, view: View, settings: Network) -> None:
        self._view = view
        self._settings = settings

    def decide(self, request: Request[ReviewedSet]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if a claim cannot be read."""
        found = request.object
        if request.old is not None or found.metadata.terminating or not _may_enrol(found, self._settings):
            return ADMITTED
        if self._view.grove_manages_domains:
            return ADMITTED
        if not _requests_gpus(found, GPURequests(self._settings), self._view.device_classes(request.namespace)):
            return ADMITTED
        entries = {AUTO_MNNVL: dialect.ENABLED}
        patch = tuple(add_entries("/metadata/annotations", entries, exists=found.metadata.has_annotations))
        return ReviewResponse(allowed=True, patch=patch)


def _may_enrol(found: PodCliqueSet, settings: Network) -> bool:
    annotated = any(
        AUTO_MNNVL in annotations or MNNVL_GROUP in annotations for _, annotations in found.annotations_by_place()
    )
    return settings.auto_mnnvl_enabled and settings.mnnvl_dialect == "auto-mnnvl" and not annotated


def _requests_gpus(found: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses) -> bool:
    # Grove makes claims from the inline templates, and adds them to pods only later.
    inline = {
        name
        for template in found.spec.template.resource_claim_templates or ()
        for name in template.template_spec.spec.device_classes()
    }
    return not inline.isdisjoint(gpus.settings.gpu_device_classes) or any(
        gpus.any(clique.spec.pod_spec, classes) for clique in found.cliques
    )


class SetValidation:
    """Refuses contradictory annotations, and changes of them; warns of what a set needs and the cluster lacks."""

    def __init__(self, view: View, settings: Network) -> None:
        self._view = view
        self._settings = settings
        self._gpus = GPURequests(settings)

    def decide(self, request: Request[ReviewedSet]) -> ReviewResponse:
        """Return the response."""
        new, old = request.object, request.old
        if new.metadata.terminating:
            return ADMITTED
        problems = [*self._problems(new, old)]
        if not problems and not dialect.enrols(new):
            return ADMITTED
        warnings: Sequence[str] = ()
        if not problems:
            try:
                classes = self._view.device_classes(request.namespace)
                problems = [*self._too_many_domains(new, old, classes)]
                warnings = () if problems else tuple(self._warnings(new, old, classes))
            except ViewUnavailable as error:
                warnings = (f"GKM did not check whether the cluster has room for the ComputeDomains: {error}",)
        if problems:
            more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
            return ReviewResponse(allowed=False, message="; ".join(problems[:_SHOWN_PROBLEMS]) + more)
        return ReviewResponse(allowed=True, warnings=tuple(warnings))

    def _problems(self, new: PodCliqueSet, old: PodCliqueSet | None) -> Iterator[str]:
        # Where Grove itself manages domains, its own switch decides.
        enabled = self._settings.auto_mnnvl_enabled or bool(self._view.grove_manages_domains)
        if old is None:
            yield from dialect.creation_problems(new, enabled=enabled)
            return
        yield from dialect.update_problems(old, new)
        # Parts that the update adds; a fault that is there already must not keep the object from being edited.
        known = set(dialect.creation_problems(old, enabled=enabled))
        yield from (found for found in dialect.creation_problems(new, enabled=enabled) if found not in known)

    def _too_many_domains(self, new: PodCliqueSet, old: PodCliqueSet | None, classes: DeviceClasses) -> Iterator[str]:
        groups = len(required_groups(new, self._gpus, classes))
        if groups * new.replicas > MAX_DOMAINS and (old is None or new.replicas > old.replicas):
            yield (
                f"{new.replicas} replicas of {groups} groups need more than {MAX_DOMAINS} ComputeDomains; "
                "divide the PodCliqueSet"
            )

    def _warnings(self, new: PodCliqueSet, old: PodCliqueSet | None, classes: DeviceClasses) -> Iterator[str]:
        for clique in new.cliques:
            group = dialect.group_of(new, clique.name)
            if group is None:
                continue
            template = domain_name(new.metadata.name, 0, group)
            if skipped := inject(clique.spec.pod_spec, template, "", self._gpus, classes).skipped:
                yield f"pods of clique {clique.name[:80]!r} join no ComputeDomain of GKM: {skipped}"
        capacity = self._view.capacity
        if capacity is not None:
            before = fit.needs(old, self._gpus, classes) if old is not None else []
            wanted = fit.needs(new, self._gpus, classes)
            yield from fit.warnings(wanted, before, capacity, one_clique=self._settings.placement == "required")
