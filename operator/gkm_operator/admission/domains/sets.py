"""Decisions about PodCliqueSets: the annotation that enrolls one by default, and what is refused or warned of.

The rules are those of gkm_operator.mnnvl. Warnings must never become refusals: free nodes change at any moment.
"""

from collections.abc import Iterator

from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL
from gkm.api.network_settings import Network

from gkm_operator.admission.domains import fit
from gkm_operator.admission.domains.patches import add_entries
from gkm_operator.admission.domains.requests import DomainRequest, ReviewedSet
from gkm_operator.admission.domains.view import TooManyClaims, View, ViewUnavailable
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import domain_name, limit_problem


class SetDefaults:
    """Adds `grove.io/auto-mnnvl: enabled` to new sets that request GPUs and have no annotation of either dialect."""

    def __init__(self, view: View, settings: Network) -> None:
        self._view = view
        self._gpus = GPURequests(settings)

    def decide(self, request: DomainRequest[ReviewedSet]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if a claim cannot be read."""
        found = request.object
        # Where Grove itself manages domains, its own webhook enrolls sets.
        if found.metadata.terminating or self._view.grove_manages_domains:
            return ADMITTED
        classes = self._view.device_classes(request.namespace)
        value = dialect.default_annotation(found, self._gpus, classes, operation=request.operation)
        if value is None:
            return ADMITTED
        entries = add_entries("/metadata/annotations", {AUTO_MNNVL: value}, exists=found.metadata.has_annotations)
        return ReviewResponse(allowed=True, patch=tuple(entries))


class SetValidation:
    """Refuses invalid annotations and changes of them, and sets that require too many domains; warns of the rest."""

    def __init__(self, view: View, settings: Network) -> None:
        self._view = view
        self._settings = settings
        self._gpus = GPURequests(settings)

    def decide(self, request: DomainRequest[ReviewedSet]) -> ReviewResponse:
        """Return the response; raise TooManyClaims if a new set has them."""
        new, old = request.object, request.old
        if new.metadata.terminating:
            return ADMITTED
        enabled = self._settings.auto_mnnvl_enabled or bool(self._view.grove_manages_domains)
        if old is None:
            problems = list(dialect.creation_problems(new, enabled=enabled))
        else:
            problems = list(dialect.update_problems(old, new, enabled=enabled))
        if problems:
            return refused(*problems)
        if not dialect.enrolls(new):
            decided = new.metadata.annotation(AUTO_MNNVL) is not None or dialect.names_groups(new)
            is_new = enabled and old is None and not decided
            return ReviewResponse(allowed=True, warnings=tuple(dialect.unread_sharing(new)) if is_new else ())
        try:
            return self._compare(new, old, self._view.device_classes(request.namespace))
        except ViewUnavailable as error:
            if old is None and isinstance(error, TooManyClaims):
                raise  # its cliques would be refused later, for the same reason
            return ReviewResponse(allowed=True, warnings=(f"GKM did not check what the ComputeDomains need: {error}",))

    def _compare(self, new: PodCliqueSet, old: PodCliqueSet | None, classes: DeviceClasses) -> ReviewResponse:
        problem = limit_problem(new, self._gpus, classes)
        if problem and not (old is not None and limit_problem(old, self._gpus, classes)):
            return ReviewResponse(allowed=False, message=problem)
        return ReviewResponse(allowed=True, warnings=tuple(self._warnings(new, old, classes)))

    def _warnings(self, new: PodCliqueSet, old: PodCliqueSet | None, classes: DeviceClasses) -> Iterator[str]:
        yield from dialect.warnings(new, self._gpus, classes)
        sharing = self._gpus.sharing(new, classes)
        for clique, scaling_group in new.memberships():
            group = dialect.group_of(new, clique, scaling_group)
            if group is None:
                continue
            template = domain_name(new.metadata.name, 0, group)
            everywhere = sharing.reaches(clique, scaling_group)
            spec = clique.spec.pod_spec
            if skipped := inject(spec, template, "", self._gpus, classes, everywhere=everywhere).skipped:
                yield f"pods of clique {clique.name[:80]!r} join no ComputeDomain of GKM: {skipped}"
        capacity = self._view.capacity
        if capacity is not None:
            before = fit.needs(old, self._gpus, classes) if old is not None else []
            wanted = fit.needs(new, self._gpus, classes)
            yield from fit.warnings(wanted, before, capacity, one_clique=self._settings.placement == "required")
