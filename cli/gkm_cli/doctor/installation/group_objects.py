"""Objects of group templates where the feature is off: the API server stores them, no controller reads them. Pure."""

from collections.abc import Iterator

from gkm.api.config import Config
from gkm.api.features import Feature, install
from gkm.api.grammar import count_of

from gkm_cli.doctor.findings import Finding, Severity, named, some
from gkm_cli.doctor.installation.observed import InstallationFacts

_SEVERITIES = {"TaskGroup": Severity.PROBLEM}
"""A workload waits for the objects of its group; templates and pools alone may be there for later."""


def inactive(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the kinds with objects that no controller reads, because taskGroups.enabled is off."""
    if not isinstance(observed.config, Config) or observed.config.task_groups.enabled:
        return
    found: dict[str, list[str]] = {}
    for kind, each in observed.group_objects:
        where = f"{each.metadata.namespace}/" if each.metadata.namespace else ""
        found.setdefault(kind, []).append(f"{where}{each.metadata.name}")
    for kind, names in sorted(found.items()):
        yield Finding(
            _SEVERITIES.get(kind, Severity.WARNING),
            named(kind, "", min(names)),
            f"GKM makes nothing of {count_of(len(names), kind)}: {some(names)}",
            "taskGroups.enabled is off in gkm-config, so no controller reads them",
            f"set taskGroups.enabled to true, and {install(Feature.TASK_GROUPS)}; or delete them",
        )
