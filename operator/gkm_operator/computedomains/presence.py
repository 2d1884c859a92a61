"""Find whether this controller can work: kinds are installed, rights are granted, and Grove does not do the work.

And who runs the IMEX daemons, on which readiness depends.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from gkm.api import computedomains, imex
from gkm.api.domain_capacity import DOMAINS_AVAILABLE, GROVE_MANAGES_DOMAINS
from gkm.api.features import Feature, install
from gkm.api.imex import IMEXMode
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, timestamp
from gkm.kube.api import Api, ListSelector
from gkm.kube.discovery import is_served
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLAIM_TEMPLATES,
    CLUSTERROLES,
    COMPUTEDOMAINS,
    DEVICE_CLASSES,
    PODCLIQUESETS,
    RESOURCE_SLICES,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether ComputeDomains can be managed; `since` is when that last changed. `sets`: PodCliqueSets are installed.

    `grove_manages` is None while it is not known whether Grove's operator writes ComputeDomains.
    """

    available: bool = False
    sets: bool = False
    grove_manages: bool | None = None
    imex: IMEXMode = IMEXMode.UNKNOWN
    reason: str = "NotChecked"
    message: str = "the controllers have not checked the API server yet"
    since: str = ""

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions for the ConfigMap `gkm-domains`."""
        found = Condition(DOMAINS_AVAILABLE, TRUE if self.available else FALSE, self.reason, self.message, self.since)
        manages = {
            True: (TRUE, "GroveMayCreateDomains", ""),
            False: (FALSE, "GKMCreatesDomains", ""),
            None: (UNKNOWN, self.reason, self.message),
        }[self.grove_manages]
        return found, Condition(GROVE_MANAGES_DOMAINS, *manages, self.since)


def observe(api: Api, grove_cluster_role: str, before: Presence) -> Presence:
    """Check the API server's kinds and rights and return the result; `before` itself if it has not changed.

    Raises:
        ApiError: the API server does not respond, or not now.
    """
    try:
        found = _observe(api, grove_cluster_role)
    except ApiError as error:
        if not error.forbidden:
            raise
        found = Presence(reason="RightsMissing", message=f"{error.message}: {install(Feature.DOMAINS)}")
    return before if replace(found, since=before.since) == before else replace(found, since=timestamp())


def missing_kind(api: Api) -> str:
    """Return the kind for ComputeDomains that the API server does not serve; "" if it serves all.

    Raises:
        ApiError: the API server does not respond, or refuses.
    """
    if not is_served(api, COMPUTEDOMAINS):
        return f"ComputeDomain CRD ({computedomains.DEFINITION}, version v1beta1) is not installed"
    if not is_served(api, CLAIM_TEMPLATES):
        return f"{CLAIM_TEMPLATES.plural} of {CLAIM_TEMPLATES.api_version} are not served"
    return ""


def _observe(api: Api, grove_cluster_role: str) -> Presence:
    if lacks := missing_kind(api):
        message = f"{lacks}: install NVIDIA's DRA driver"
        return Presence(grove_manages=False, reason="KindMissing", message=message)
    found = imex_mode(api)
    return Presence(
        available=True,
        sets=is_served(api, PODCLIQUESETS),
        grove_manages=_grove_creates(api, grove_cluster_role),
        imex=found,
        reason="Available",
        message="the hosts run the IMEX daemons (hostManaged)" if found is IMEXMode.HOST_MANAGED else "",
    )


def imex_mode(api: Api) -> IMEXMode:
    """Return who runs the IMEX daemons: NVIDIA's driver or the hosts.

    Raises:
        ApiError: the API server does not respond, or refuses.
    """
    if api.find(DEVICE_CLASSES, imex.DAEMON_CLASS) is not None:
        return imex.mode(has_daemon_class=True, types=())
    pages = api.list_pages(RESOURCE_SLICES, ListSelector(fields=f"spec.driver={imex.DRIVER}"))
    types = {each for page in pages for entry in page.entries for each in entry.value.types}
    return imex.mode(has_daemon_class=False, types=types)


def _grove_creates(api: Api, cluster_role: str) -> bool:
    """Return whether Grove's operator may create ComputeDomains: its chart grants that with its own switch only."""
    role = api.find(CLUSTERROLES, cluster_role)
    return role is not None and role.allows("create", computedomains.GROUP, COMPUTEDOMAINS.plural)
