"""Reports whether the CSIDriver and both DaemonSets are there and ours: installing them is the chart's task, not ours.

The leader looks once a minute. It publishes the result as the metric gkm_installed; a change is an Event about
the ConfigMap gkm-config. While nothing changes, nothing is written. Whatever fails here stops nothing else.
"""

import logging
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Final

from gkm.api.installation import AGENT, CONFIG_MAP, CSI, DRIVER, driver_differences, is_our_daemon_set
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.elector import NotLeading
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CONFIGMAPS, CSI_DRIVERS, DAEMON_SETS, Json

from gkm_operator import metrics

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
CLOSE_SECONDS = 5.0
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


class InstallationReport:
    """Looks at the parts while this replica leads, in a thread of its own."""

    def __init__(self, api: Api, *, instance: str, namespace: str) -> None:
        self._api = api
        self._recorder = Recorder(api, "gkm.io/installation", instance)
        self._namespace = namespace
        self._seen: Faults | None = None
        self._last_error = ""
        self._stop = Event()
        self._thread = Thread(target=self._run, name=TASK, daemon=True)

    def work(self) -> None:
        """Start to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop; wait a moment for a request in progress."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def look(self) -> None:
        """Look once: set the metrics, and send an Event if something has changed.

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

    def _occasion(self) -> str:
        """Return what makes the Event a new one: at first the hour, so that replicas that restart send it once."""
        return f"{datetime.now(UTC):%Y-%m-%dT%H}" if self._seen is None else datetime.now(UTC).isoformat()

    def _regarding(self) -> Regarding:
        found = self._api.find(CONFIGMAPS, CONFIG_MAP, self._namespace) or {}
        uid = str(found.get("metadata", {}).get("uid", ""))
        return Regarding("v1", "ConfigMap", CONFIG_MAP, self._namespace, uid)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
                self._last_error = ""
            except (ApiError, NotLeading) as error:
                if str(error) != self._last_error:
                    self._last_error = str(error)
                    _LOG.warning("installation not checked", extra=fields(why=self._last_error))
            self._stop.wait(LOOK_SECONDS)
