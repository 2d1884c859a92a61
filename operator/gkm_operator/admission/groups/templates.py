"""Decisions about GroupTemplates: what is written must compile, render, merge into its pools, and pass as an object.

The author of a template must have the right to create its kind: the controllers create it with theirs.
"""

from collections.abc import Iterator

from gkm.api.grammar import listed
from gkm.hoststate.names import quoted
from gkm.kube.discovery import KindName
from gkm.templates.planning import findings, merged_objects, sample_object
from gkm.templates.values import Json, TemplateInvalid

from gkm_operator.admission.domains.requests import DomainRequest, UserInfo
from gkm_operator.admission.groups.objects import ReviewedIdentity, ReviewedTemplate
from gkm_operator.admission.groups.view import ObjectRefused, Partners, Templates
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused

_SHOWN_POOLS = 5


class TemplateReview:
    """Decides about new and changed GroupTemplates."""

    def __init__(self, partners: Partners) -> None:
        self._partners = partners

    def decide(self, request: DomainRequest[ReviewedTemplate]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if the cluster cannot be read."""
        template = request.object
        planned, renderer, settings = template.planned, self._partners.renderer, self._partners.settings
        try:
            found = findings(planned, settings, renderer)
            if found.errors:
                return refused(*found.errors)
            rendered = sample_object(planned, settings, renderer)
        except TemplateInvalid as error:
            return refused(str(error))
        if problems := list(self._pool_problems(template)):
            return refused(*problems)
        return self._check_on_cluster(request.user, rendered, found.warnings)

    def _pool_problems(self, changed: ReviewedTemplate) -> Iterator[str]:
        """Yield the pools whose templates would not merge any more; missing templates are ignored."""
        for pool in self._partners.templates.pools_of(changed.metadata.name):
            found = [
                template.planned
                for name in pool.spec.common_group_templates
                if (template := changed if name == changed.metadata.name else self._partners.templates.template(name))
            ]
            try:
                merged_objects(found)
            except TemplateInvalid as error:
                yield f"Pool {quoted(pool.metadata.name)} would break: {error}"

    def _check_on_cluster(self, user: UserInfo, rendered: Json, warnings: tuple[str, ...]) -> ReviewResponse:
        cluster, name = self._partners.cluster, KindName.of(rendered["apiVersion"], rendered["kind"])
        resource = cluster.served(rendered)
        plural = resource.plural if resource else self._partners.settings.plural(*name)
        if not cluster.may_create(user, name.group, plural):
            return refused(
                f"user {quoted(user.username)} may not create {name} in all namespaces; the author of a template "
                "needs that right, because GKM creates its objects in every namespace"
            )
        if resource is not None and not resource.namespaced:
            return refused(f"{name} is cluster-scoped; a template makes an object in the namespace of its group")
        try:
            untried = cluster.dry_run(resource, rendered) if resource else f"{name} is not installed in this version"
        except ObjectRefused as error:
            if not error.incomplete:
                return refused(f"with sample values, the API server refuses the object: {error}")
            untried = f"it lacks fields, which other templates of its pools must add: {error}"
        if untried:
            warnings = (*warnings, f"the template was not checked against its schema: {untried}")
        return ReviewResponse(allowed=True, warnings=warnings)


class TemplateDeletion:
    """Refuses to delete a GroupTemplate that a pool names."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    def decide(self, request: DomainRequest[ReviewedIdentity]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if the pools cannot be read."""
        metadata = request.object.metadata
        pools = sorted(pool.metadata.name for pool in self._templates.pools_of(metadata.name))
        if metadata.terminating or not pools:
            return ADMITTED
        return refused(
            f"GroupTemplate {quoted(metadata.name)} is in use by Pools: {listed(pools, _SHOWN_POOLS)}; remove it from "
            "their spec.commonGroupTemplates first"
        )
