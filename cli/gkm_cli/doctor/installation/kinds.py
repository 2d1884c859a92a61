"""The kinds of GKM: their CustomResourceDefinitions are there, ours, and of this version; no object is idle. Pure.

Where the feature of group templates is off, the API server stores their objects, and no controller reads them.
"""

from collections.abc import Iterator

from gkm.api.config import Config
from gkm.api.definition_origin import MIGRATION, DefinitionOrigin
from gkm.api.features import Feature, install
from gkm.api.grammar import count_of
from gkm.kube.resources import NEEDED, TASKGROUPS

from gkm_cli.doctor.findings import Finding, Severity, named, some
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import check, differences
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

_KIND = "CustomResourceDefinition"
_SEVERITIES = {"TaskGroup": Severity.PROBLEM}
"""A workload waits for the objects of its group; templates and pools alone may be there for later."""


@check("kinds/missing", "every kind of GKM is installed", "definitions")
def missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the CustomResourceDefinitions of GKM that do not exist."""
    for name, found in observed.definitions.items():
        if found is None:
            why = "no object of this kind can be created"
            if name.partition(".")[0] in {resource.plural for resource in NEEDED}:
                why = f"{why}, and the controllers do not start without it"
            yield problem(_KIND, name, "it is not installed", why, "gkm crds --apply")


@check("kinds/foreign", "no kind is another product's", "definitions", subjects.DEFINITIONS)
def foreign(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the CustomResourceDefinitions with names of GKM's that belong to another product."""
    for name, difference in differences(observed.definitions, DefinitionOrigin.FOREIGN):
        yield problem(
            _KIND,
            name,
            f"it is another product's: it {difference}",
            "upstream GKM has kinds of the same names; the API server drops the fields that its schema lacks",
            f"remove that product and its kinds, then gkm crds --apply: {MIGRATION}",
        )


@check("kinds/outdated", "every kind is of this version", "definitions", subjects.DEFINITIONS)
def outdated(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the CustomResourceDefinitions that are from an earlier version of GKM."""
    for name, difference in differences(observed.definitions, DefinitionOrigin.EARLIER):
        yield problem(
            _KIND,
            name,
            f"it is of an earlier version: it {difference}",
            "Helm installs kinds once and never changes them; the API server drops the fields that are not there",
            "gkm crds --apply",
        )


@check(
    "groups/inactive",
    "every group template, pool and group has its feature",
    "config_map group_objects",
    subjects.GROUPS,
)
def inactive(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the kinds with objects that no controller reads, because taskGroups.enabled is off.

    TaskGroups that are being deleted are read, if the controllers have the rights.
    """
    if not isinstance(observed.config, Config) or observed.config.task_groups.enabled:
        return
    found: dict[str, list[str]] = {}
    held: list[str] = []
    for kind, each in observed.group_objects:
        where = f"{each.metadata.namespace}/" if each.metadata.namespace else ""
        deleted = kind == TASKGROUPS.kind and each.metadata.deletion_timestamp is not None
        (held if deleted else found.setdefault(kind, [])).append(f"{where}{each.metadata.name}")
    if held:
        yield Finding(
            Severity.PROBLEM,
            named(TASKGROUPS.kind, "", min(held)),
            f"{count_of(len(held), TASKGROUPS.kind)} cannot be deleted yet: {some(held)}",
            "the controllers remove their objects and finalizer, also while taskGroups.enabled is off, but need the "
            "rights of the feature",
            f"{install(Feature.TASK_GROUPS)}, until they are gone",
        )
    for kind, names in sorted(found.items()):
        yield Finding(
            _SEVERITIES.get(kind, Severity.WARNING),
            named(kind, "", min(names)),
            f"GKM ignores {count_of(len(names), kind)}: {some(names)}",
            "taskGroups.enabled is off in gkm-config, so no controller reads them",
            f"set taskGroups.enabled to true, and {install(Feature.TASK_GROUPS)}; or delete them",
        )
