"""Decisions about Pools: the templates exist, merge, and make objects that the API server takes."""

import time
from collections.abc import Callable, Sequence

from gkm.hoststate.names import quoted
from gkm.templates.checks import check
from gkm.templates.planning import PoolTemplate, merged_objects, sample_objects
from gkm.templates.values import Json, TemplateInvalid

from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.groups.objects import ReviewedPool
from gkm_operator.admission.groups.view import ObjectRefused, Partners, Templates
from gkm_operator.admission.review import ReviewResponse, refused

DRY_RUN_SECONDS = 3.0
"""No dry run of a review begins later; the review has 5 seconds, and a pool up to 64 objects."""


class PoolReview:
    """Decides about Pools."""

    def __init__(self, partners: Partners, clock: Callable[[], float] = time.monotonic) -> None:
        self._partners = partners
        self._clock = clock

    def decide(self, request: DomainRequest[ReviewedPool]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if the cluster cannot be read."""
        pool, until = request.object, self._clock() + DRY_RUN_SECONDS
        try:
            objects = merged_objects(templates_of(pool, self._partners.templates))
            if problems := [error for each in objects for error in check(each, self._partners.settings).errors]:
                return refused(*problems)
            rendered = sample_objects(objects, self._partners.settings, self._partners.renderer)
        except TemplateInvalid as error:
            return refused(str(error))
        return self._check_on_cluster(rendered, until)

    def _check_on_cluster(self, rendered: Sequence[Json], until: float) -> ReviewResponse:
        problems, warnings = [], []
        for each in rendered:
            name = f"{each['kind']} {quoted(each['metadata']['name'])}"
            if self._clock() > until:
                warnings.append(f"{name} and the objects after it were not checked: the API server takes too long")
                break
            resource = self._partners.cluster.served(each)
            try:
                untried = self._partners.cluster.dry_run(resource, each) if resource else "its kind is not installed"
            except ObjectRefused as error:
                problems.append(f"with sample values, the API server refuses {name}: {error}")
                continue
            if untried:
                warnings.append(f"{name} was not checked against its schema: {untried}")
        return refused(*problems) if problems else ReviewResponse(allowed=True, warnings=tuple(warnings))


def templates_of(pool: ReviewedPool, templates: Templates) -> list[PoolTemplate]:
    """Return the templates of a pool in its order.

    Raises:
        TemplateInvalid: some do not exist, or are being deleted.
        ViewUnavailable: they cannot be read.
    """
    found = [(name, templates.template(name)) for name in pool.spec.common_group_templates]
    if missing := sorted({quoted(name) for name, template in found if template is None}):
        named = f"Pool {quoted(pool.metadata.name)} names GroupTemplates"
        raise TemplateInvalid(f"{named} that do not exist, or are being deleted: {', '.join(missing)}")
    return [template.planned for _, template in found if template is not None]
