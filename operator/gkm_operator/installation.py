"""Check whether GKM is installed completely: what the controllers need at their start, and parts of the chart.

At the start our kinds must be there, and this account must have the right to use them. An error that only an
administrator can repair ends the process with a line that tells how, so that a rollout stops visibly. The controllers
wait out passing errors, such as an unavailable API server.

Later the leader looks once a minute whether the CSIDriver and both DaemonSets are there and ours. It publishes the
result as the metric gkm_installed; a change is an Event about the ConfigMap gkm-config. Without a change, it writes no
Event. A failure there does not stop other work.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from gkm.api import crds
from gkm.api.definition_origin import MIGRATION, DefinitionOrigin, compare
from gkm.api.features import RESTORE_RIGHTS, Feature, install
from gkm.api.installation import AGENT, CONFIG_MAP, CSI, DRIVER, driver_differences, is_our_daemon_set
from gkm.api.meta import GROUP
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.leases import LEASES
from gkm.kube.resources import CONFIGMAPS, CSI_DRIVERS, DAEMON_SETS, DEFINITIONS, NEEDED, Json

from gkm_operator import metrics
from gkm_operator.caches.totals import AGENT_SETS, agent_set
from gkm_operator.computedomains import presence
from gkm_operator.nodes import NODES
from gkm_operator.pods import PODS

_LOG = logging.getLogger(__name__)

BACKOFF = Backoff(0.5, 15.0)

CHECK_SECONDS = 60.0
TASK: Final = "installation"
COMPLETE, INCOMPLETE = "InstallationComplete", "InstallationIncomplete"

Faults = dict[str, str]
"""The fault of each part of the installation as a sentence; "" if it has no fault."""


class KindsMissing(RuntimeError):
    """The API server lacks a kind of GKM's API; the message names it."""


class KindsForeign(RuntimeError):
    """The API server has a kind whose name is GKM's, from another product."""


class MNNVLMissing(RuntimeError):
    """MNNVL is enabled, and the API server lacks a kind that it needs."""


class RightsMissing(RuntimeError):
    """The API server denies a request; the message names the missing rule."""


def wait(
    api: Api,
    lease: tuple[str, str],
    stop: Event,
    backoff: Backoff = BACKOFF,
    *,
    mnnvl_enabled: bool = False,
    also: Iterable[Callable[[], None]] = (),
) -> bool:
    """Repeat the checks of the installation until all pass and return True; False if `stop` is set first.

    `lease` is the namespace and name of the Lease. `also` are further checks.

    Raises:
        KindsMissing, KindsForeign, MNNVLMissing, RightsMissing: as `check` and `check_mnnvl`; and what `also` raises.
    """
    failures = 0
    while not stop.is_set():
        try:
            check(api, lease)
            if mnnvl_enabled:
                check_mnnvl(api)
            for further in also:
                further()
        except ApiError as error:
            failures += 1
            _LOG.warning(
                "API server not available, start-up checks are tried again",
                extra=fields(failures=failures, why=str(error)),
            )
            stop.wait(backoff.pause(failures, error.retry_after))
        else:
            return True
    return False


def check(api: Api, lease: tuple[str, str]) -> None:
    """Check that GKM's kinds exist, belong to GKM and can be listed, and that other needed resources can be read.

    Raises:
        KindsMissing: a kind does not exist.
        KindsForeign: a kind is another product's.
        RightsMissing: a request was denied.
        ApiError: the API server does not respond, or not now.
    """
    try:
        for resource in NEEDED:
            try:
                found = api.get(DEFINITIONS, f"{resource.plural}.{resource.api_version.partition('/')[0]}")
                if reason := foreign(resource.plural, found):
                    raise KindsForeign(reason)
                next(iter(api.list_pages(resource, limit=1)))
            except ApiError as error:
                if error.not_found:
                    raise KindsMissing(f"the API server has no {resource.plural}: apply crds/") from error
                raise
        next(iter(api.list_pages(NODES, limit=1)))
        # The first Run lists Pods of all namespaces; a missing right must be reported before that.
        next(iter(api.list_pages(PODS, limit=1)))
        next(iter(api.list_pages(AGENT_SETS, agent_set(lease[0]), limit=1)))
        _read(api, lease)
    except ApiError as error:
        if error.forbidden:
            raise RightsMissing(f"{error.message}: {RESTORE_RIGHTS}; bind it to this account") from error
        raise


def check_mnnvl(api: Api) -> None:
    """Check that ComputeDomains are installed and can be listed: a cluster where MNNVL is enabled has them.

    Raises:
        MNNVLMissing: a kind, or the version that GKM uses, is not served.
        RightsMissing: a request was denied.
        ApiError: the API server does not respond, or not now.
    """
    try:
        missing = presence.missing_kind(api)
    except ApiError as error:
        if error.forbidden:
            raise RightsMissing(f"{error.message}: {install(Feature.DOMAINS)}, which has the rule") from error
        raise
    if missing:
        raise MNNVLMissing(
            f"MNNVL preflight check failed: MNNVL is enabled but {missing}; install NVIDIA's DRA driver, or set "
            "network.autoMNNVLEnabled to false"
        )


def _read(api: Api, lease: tuple[str, str]) -> None:
    """Read the Lease, which need not exist yet: without that right a replica would wait forever to lead."""
    namespace, name = lease
    api.find(LEASES, name, namespace)


def foreign(plural: str, found: Mapping[str, Any]) -> str:
    """Return why a CustomResourceDefinition is not GKM's; "" if it is. Additional fields are allowed."""
    (ours,) = (kind for kind in crds.KINDS if kind.plural == plural)
    comparison = compare(crds.definition(ours), found)
    if comparison.origin in (DefinitionOrigin.SAME, DefinitionOrigin.LATER):
        return ""
    name, difference = f"the API server's CustomResourceDefinition {plural}.{GROUP}", comparison.difference
    if comparison.origin is DefinitionOrigin.EARLIER:
        return f"{name} is of an earlier version, it {difference}: apply our crds/"
    # Upstream GKM has kinds of the same names.
    what_next = f"uninstall the product it belongs to (upstream GKM: {MIGRATION}), or apply our crds/"
    return f"{name} is not ours, it {difference}: {what_next}"


def faults(driver: Json | None, agent: Json | None, csi: Json | None, delivery: str = "csi") -> Faults:
    """Return the fault of CSIDriver, agent and CSI DaemonSet, "" if good; None stands for an absent object. Pure.

    Without any of them, `delivery` image or auto needs none.
    """
    if delivery != "csi" and driver is agent is csi is None:
        return dict.fromkeys(("csidriver", "agent", "csi"), "")
    found = {"csidriver": f"there is no CSIDriver {DRIVER}"}
    if driver is not None:
        differences = driver_differences(driver)
        found["csidriver"] = f"the CSIDriver {DRIVER} is not ours: {'; '.join(differences)}" if differences else ""
    for part, name, made in (("agent", AGENT, agent), ("csi", CSI, csi)):
        if made is None:
            found[part] = f"there is no DaemonSet {name}"
        else:
            found[part] = "" if is_our_daemon_set(made, name) else f"the DaemonSet {name} is not GKM's"
    return found


def event_of(before: Faults | None, now: Faults) -> EventBody | None:
    """Return the Event body for a change of faults; None if they did not change, or there were none at first. Pure."""
    wrong = "; ".join(text for _, text in sorted(now.items()) if text)
    if before == now or (before is None and not wrong):
        return None
    if wrong:
        return EventBody("Warning", INCOMPLETE, "Install", f"{wrong}; gkm doctor has the next step")
    return EventBody("Normal", COMPLETE, "Install", "the CSIDriver and both DaemonSets are there and ours")


class InstallationReport(Controller):
    """Checks the parts of the installation at intervals while this replica leads."""

    def __init__(self, api: Api, *, instance: str, namespace: str, delivery: str = "csi") -> None:
        super().__init__(TASK)
        self._api = api
        self._delivery = delivery
        self._recorder = Recorder(api, "gkm.io/installation", instance)
        self._namespace = namespace
        self._seen: Faults | None = None

    def run(self) -> None:
        """Check the installation at intervals until the process ends."""
        self.repeat(self.check, Backoff(CHECK_SECONDS, CHECK_SECONDS), failure="installation not checked")

    def check(self) -> float:
        """Check once: set the metric and send an Event after a change; return the seconds until the next check.

        Raises:
            ApiError: the API server does not answer, or denies a request; the metrics stay as they are.
        """
        now = faults(
            self._api.find(CSI_DRIVERS, DRIVER),
            self._api.find(DAEMON_SETS, AGENT, self._namespace),
            self._api.find(DAEMON_SETS, CSI, self._namespace),
            self._delivery,
        )
        for part, fault in now.items():
            metrics.INSTALLED.labels(part).set(0 if fault else 1)
        metrics.succeeded(TASK)
        body = event_of(self._seen, now)
        if body is not None:
            self._recorder.emit(self._regarding(), body, self._occasion())
            if body.kind == "Normal":
                _LOG.info("installation complete", extra=fields(why=body.note))
            else:
                _LOG.warning("installation incomplete", extra=fields(why=body.note))
        self._seen = now
        return CHECK_SECONDS

    def _occasion(self) -> str:
        """Return what makes the Event a new one: at first the hour, so that replicas that restart send it once."""
        return f"{datetime.now(UTC):%Y-%m-%dT%H}" if self._seen is None else datetime.now(UTC).isoformat()

    def _regarding(self) -> Regarding:
        found = self._api.find(CONFIGMAPS, CONFIG_MAP, self._namespace) or {}
        uid = str(found.get("metadata", {}).get("uid", ""))
        return Regarding("v1", "ConfigMap", CONFIG_MAP, self._namespace, uid)
