"""The report about the installation: what is wrong, the metric of each part, and an Event for each change."""

from typing import Any

import pytest
import yaml
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, CSI_DRIVERS, DAEMON_SETS, EVENTS
from gkm_operator import metrics
from gkm_operator.installation import Faults, InstallationReport, event_of, faults
from support.kube.fake_api import FakeApi
from support.operator.deployment import manifests

Json = dict[str, Any]
SYSTEM = "gkm-system"
HEALTHY: Faults = {"csidriver": "", "agent": "", "csi": ""}


def shipped(kind: str, name: str) -> Json:
    made: Json = yaml.load(
        yaml.safe_dump(next(one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name))),
        yaml.CSafeLoader,
    )
    return made


def parts() -> tuple[Json, Json, Json]:
    return shipped("CSIDriver", "csi.gkm.io"), shipped("DaemonSet", "gkm-agent"), shipped("DaemonSet", "gkm-csi")


def test_what_the_chart_installs_is_ours() -> None:
    assert faults(*parts()) == HEALTHY


def test_each_part_that_is_missing_is_named() -> None:
    assert faults(None, None, None) == {
        "csidriver": "there is no CSIDriver csi.gkm.io",
        "agent": "there is no DaemonSet gkm-agent",
        "csi": "there is no DaemonSet gkm-csi",
    }


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("volumeLifecycleModes", ["Persistent"], "volumeLifecycleModes is ['Persistent'], not [Ephemeral]"),
        ("podInfoOnMount", False, "podInfoOnMount is False, not True"),
        ("podInfoOnMount", None, "podInfoOnMount is not set, not True"),
        ("attachRequired", True, "attachRequired is True, not False"),
        ("fsGroupPolicy", "File", "fsGroupPolicy is File, not None"),
    ],
)
def test_a_driver_with_another_setting_is_not_ours(field: str, value: object, words: str) -> None:
    driver, agent, csi = parts()
    driver["spec"][field] = value
    assert faults(driver, agent, csi) == HEALTHY | {"csidriver": f"the CSIDriver csi.gkm.io is not ours: {words}"}


@pytest.mark.parametrize("damaged", [{}, {"metadata": [], "spec": 1}, {"metadata": {"labels": None}}])
def test_objects_of_any_shape_are_not_ours(damaged: Json) -> None:
    found = faults(damaged, damaged, damaged)
    assert all(found.values())


def test_a_change_is_an_event_and_no_change_is_none() -> None:
    broken = HEALTHY | {"csi": "there is no DaemonSet gkm-csi"}
    assert event_of(None, HEALTHY) is event_of(HEALTHY, HEALTHY) is event_of(broken, broken) is None
    first, again = event_of(None, broken), event_of(broken, HEALTHY)
    assert first is not None
    assert (first.kind, first.reason) == ("Warning", "InstallationIncomplete")
    assert first.note.startswith("there is no DaemonSet gkm-csi; ")
    assert again is not None
    assert (again.kind, again.reason) == ("Normal", "InstallationComplete")


class Place:
    def __init__(self) -> None:
        self.api = FakeApi()
        driver, agent, csi = parts()
        self.api.create(CSI_DRIVERS, driver)
        for one in (agent, csi):
            self.api.create(DAEMON_SETS, one)
        self.api.create(CONFIGMAPS, {"metadata": {"name": "gkm-config", "namespace": SYSTEM}})
        self.report = InstallationReport(self.api, instance="a", namespace=SYSTEM)

    def events(self) -> list[Json]:
        return [entry.value for page in self.api.list_pages(EVENTS) for entry in page.entries]

    def installed(self) -> dict[str, float]:
        (family,) = metrics.INSTALLED.collect()
        return {sample.labels["part"]: sample.value for sample in family.samples}


def test_a_part_that_goes_and_comes_back_is_reported_twice_and_nothing_is_written_between() -> None:
    place = Place()
    place.report.check()
    assert (place.installed(), place.events()) == ({"csidriver": 1, "agent": 1, "csi": 1}, [])
    place.api.delete(DAEMON_SETS, "gkm-csi", SYSTEM)
    for _ in range(3):
        place.report.check()
    assert place.installed() == {"csidriver": 1, "agent": 1, "csi": 0}
    (event,) = place.events()
    uid = place.api.get(CONFIGMAPS, "gkm-config", SYSTEM)["metadata"]["uid"]
    regarding = event["regarding"]
    assert (regarding["kind"], regarding["name"], regarding["uid"]) == ("ConfigMap", "gkm-config", uid)
    place.api.create(DAEMON_SETS, parts()[2])
    for _ in range(3):
        place.report.check()
    assert place.installed() == {"csidriver": 1, "agent": 1, "csi": 1}
    assert sorted(one["reason"] for one in place.events()) == ["InstallationComplete", "InstallationIncomplete"]


def test_a_replica_that_restarts_sends_no_second_event() -> None:
    place = Place()
    place.api.delete(DAEMON_SETS, "gkm-csi", SYSTEM)
    for _ in range(3):
        InstallationReport(place.api, instance="a", namespace=SYSTEM).check()
    assert len(place.events()) <= 2, "two, where the hour has changed meanwhile"


def test_what_cannot_be_read_changes_no_metric() -> None:
    place = Place()
    place.report.check()
    place.api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == "csidrivers" else None
    with pytest.raises(ApiError, match="Forbidden: no"):
        place.report.check()
    assert place.installed() == {"csidriver": 1, "agent": 1, "csi": 1}
