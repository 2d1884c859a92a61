"""The kinds of GKM: the CustomResourceDefinitions are there, ours, and of this version. Pure."""

from collections.abc import Iterator, Mapping

from gkm.api import crds
from gkm.api.definition_origin import MIGRATION, DefinitionOrigin, compare
from gkm.kube.resources import Json

from gkm_cli.doctor.findings import Finding
from gkm_cli.doctor.installation.observed import InstallationFacts, Objects, problem

OURS: Mapping[str, Json] = {one["metadata"]["name"]: one for one in crds.definitions().values()}
_KIND = "CustomResourceDefinition"


def missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the definitions that do not exist."""
    for name, found in observed.definitions.items():
        if found is None:
            why = "the controllers do not start without it, and nothing of this kind can be created"
            yield problem(_KIND, name, "it is not installed", why, "gkm crds --apply")


def foreign(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the definitions of another product."""
    for name, difference in _differences(observed.definitions, DefinitionOrigin.FOREIGN):
        yield problem(
            _KIND,
            name,
            f"it is another product's: it {difference}",
            "upstream GKM has kinds of the same names; the API server drops the fields that its schema lacks",
            f"remove that product and its kinds, then gkm crds --apply: {MIGRATION}",
        )


def outdated(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the definitions of an earlier version."""
    for name, difference in _differences(observed.definitions, DefinitionOrigin.EARLIER):
        yield problem(
            _KIND,
            name,
            f"it is of an earlier version: it {difference}",
            "Helm installs kinds once and never changes them; the API server drops the fields that are not there",
            "gkm crds --apply",
        )


def are_ours(definitions: Objects) -> bool:
    """Return whether all exist and none is another product's: only then its objects mean anything."""
    return all(definitions.values()) and not any(_differences(definitions, DefinitionOrigin.FOREIGN))


def _differences(definitions: Objects, origin: DefinitionOrigin) -> Iterator[tuple[str, str]]:
    for name, found in definitions.items():
        if found and (comparison := compare(OURS[name], found)).origin is origin:
            yield name, comparison.difference
