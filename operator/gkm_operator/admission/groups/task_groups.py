"""Decisions about new TaskGroups: the pool exists, its rules are met, and its templates render for this group.

The controllers check the same again before they create anything. Must never refuse an update: its fields are immutable
but the phase, which ends the group.
"""

from gkm.hoststate.names import quoted
from gkm.templates.planning import planned_objects
from gkm.templates.values import TemplateInvalid

from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.groups.objects import ReviewedGroup
from gkm_operator.admission.groups.pools import templates_of
from gkm_operator.admission.groups.view import Partners
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused


class TaskGroupReview:
    """Decides about TaskGroups."""

    def __init__(self, partners: Partners) -> None:
        self._partners = partners

    def decide(self, request: DomainRequest[ReviewedGroup]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if the cluster cannot be read."""
        group = request.object.group
        if request.operation != "CREATE":
            return ADMITTED
        pool = self._partners.templates.pool(group.spec.pool)
        if pool is None:
            return refused(f"Pool {quoted(group.spec.pool)} does not exist, or is being deleted")
        try:
            templates = templates_of(pool, self._partners.templates)
            planned_objects(group, templates, self._partners.settings, self._partners.renderer)
        except TemplateInvalid as error:
            return refused(str(error))
        return ADMITTED
