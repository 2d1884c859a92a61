"""Reports whether the CSIDriver and both DaemonSets are there and ours: installing them is the chart's task, not ours.

The leader looks once a minute. It publishes the result as the metric gkm_installed; a change is an Event about
the ConfigMap gkm-config. While nothing changes, nothing is written. Whatever fails here stops nothing else.
"""

import logging
from datetime import UTC, datetime
from typing import Final

from gkm.api.installation import AGENT, CONFIG_MAP, CSI, DRIVER, driver_differences, is_our_daemon_set
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CONFIGMAPS, CSI_DRIVERS, DAEMON_SETS, Json

from gkm_operator import metrics

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
TASK: Final = "installation"
COMPLETE, INCOMPLETE = "InstallationComplete", "InstallationIncomplete"

Faults = dict[str, str]
"""What is wrong with each part, as a sentence; "" for nothing."""


def faults(driver: Json | None, agent: Json | None, csi: Json | None) -> Faults:
    """Return the faults of the parts of an installation; None is an object that does not exist. Pure."""
    found = {"csidriver": f"there is no CSIDriver {DRIVER}"}
    if driver is not None:
        differences = driver_differences(driver)
        found["csidriver"] = f"the CSIDriver {DRIVER} is not ours: {'; '.join(differences)}" if differences else ""
    for part, name, made in (("agent", AGENT, agent), ("csi", CSI, csi)):
        if made is None:
            found[part] = f"there is no DaemonSet {name}"
        else:
            found[part] = "" if is_our_daemon_set(made, name) else f"the DaemonSet {name} is not the one that GKM ships"
    return found


def event_of(before: Faults | None, now: Faults) -> EventBody | None:
    """Return the Event of a change; None if nothing changed, or all is well at first (`before` is None). Pure."""
    wrong = "; ".join(text for _, text in sorted(now.items()) if text)
    if before == now or (before is None and not wrong):
        return None
    if wrong:
        hint = "install the chart again; gkm doctor says more"
        return EventBody("Warning", INCOMPLETE, "Install", f"{wrong}; {hint}")
    return EventBody("Normal", COMPLETE, "Install", "the CSIDriver and both DaemonSets are there and ours")


class InstallationReport(Controller):
    """Looks at the parts while this replica leads, in a thread of its own."""

    def __init__(self, api: Api, *, instance: str, namespace: str) -> None:
        super().__init__(TASK)
        self._api = api
        self._recorder = Recorder(api, "gkm.io/installation", instance)
        self._namespace = namespace
        self._seen: Faults | None = None

    def run(self) -> None:
        """Look until the end."""
        self.repeat(self.look, Backoff(LOOK_SECONDS, LOOK_SECONDS), failure="installation not checked")

    def look(self) -> float:
        """Look once: set the metrics, and send an Event if something has changed; return the seconds until the next.

        Raises:
            ApiError: the API server does not answer, or denies a request; the metrics stay as they are.
        """
        now = faults(
            self._api.find(CSI_DRIVERS, DRIVER),
            self._api.find(DAEMON_SETS, AGENT, self._namespace),
            self._api.find(DAEMON_SETS, CSI, self._namespace),
        )
        for part, fault in now.items():
            metrics.INSTALLED.labels(part).set(0 if fault else 1)
        metrics.succeeded(TASK)
        body = event_of(self._seen, now)
        if body is not None:
            self._recorder.emit(self._regarding(), body, self._occasion())
            _LOG.log(
                logging.INFO if body.kind == "Normal" else logging.WARNING, "installation", extra=fields(why=body.note)
            )
        self._seen = now
        return LOOK_SECONDS

    def _occasion(self) -> str:
        """Return what makes the Event a new one: at first the hour, so that replicas that restart send it once."""
        return f"{datetime.now(UTC):%Y-%m-%dT%H}" if self._seen is None else datetime.now(UTC).isoformat()

    def _regarding(self) -> Regarding:
        found = self._api.find(CONFIGMAPS, CONFIG_MAP, self._namespace) or {}
        uid = str(found.get("metadata", {}).get("uid", ""))
        return Regarding("v1", "ConfigMap", CONFIG_MAP, self._namespace, uid)
