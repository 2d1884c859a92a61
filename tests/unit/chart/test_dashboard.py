"""The layout of the dashboard, its colors, and the pages that it links. Its expressions: tests/partners/monitoring."""

import json
from itertools import combinations
from typing import Any

import pytest
import yaml
from markdown_links import anchors
from support.monitoring.expressions import DASHBOARD, alerts, of_dashboard
from support.operator.deployment import ROOT

VALUE = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = VALUE["panels"]
COLUMNS = 24


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    across = range(place["x"], place["x"] + place["w"])
    return {(x, y) for x in across for y in range(place["y"], place["y"] + place["h"])}


def test_panels_have_numbers_of_their_own_and_titles() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    titles = [panel["title"] for panel in PANELS if panel["type"] != "row"]
    assert len(set(titles)) == len(titles)
    assert all(panel["description"] for panel in PANELS if panel["type"] != "row")


def test_no_panel_covers_another_or_leaves_the_page() -> None:
    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    assert all(0 <= x < COLUMNS for panel in PANELS for x, _ in cells(panel))


def test_every_panel_reads_the_source_that_the_reader_chose() -> None:
    (source, *choices) = VALUE["templating"]["list"]
    wanted = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    assert [choice["name"] for choice in choices] == ["node", "namespace", "cache"]
    assert all(choice["datasource"] == wanted for choice in choices)
    for panel in PANELS:
        assert all(target["datasource"] == wanted for target in panel.get("targets", []))
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(letters)) == len(letters)


def color(title: str, value: float) -> str:
    """Return the color that Grafana gives to the number of a panel: that of the highest threshold that it reaches."""
    (panel,) = (each for each in PANELS if each["title"] == title)
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["color"]["mode"] == "fixed":
        return str(defaults["color"]["fixedColor"])
    steps = defaults["thresholds"]["steps"]
    return [str(step["color"]) for step in steps if step["value"] is None or value >= step["value"]][-1]


@pytest.mark.parametrize(
    ("title", "value", "expected"),
    [
        ("Alerts", 0, "green"),
        ("Alerts", 3, "red"),
        ("Failed", 0, "green"),
        ("Failed", 1, "red"),
        ("Leaders", 0, "red"),
        ("Leaders", 1, "green"),
        ("Leaders", 2, "red"),
        ("Agents", 0, "text"),
        ("Mounted", 7, "text"),
    ],
)
def test_a_number_is_green_only_where_it_says_that_all_is_well(title: str, value: float, expected: str) -> None:
    assert color(title, value) == expected


def test_every_panel_links_a_runbook_that_exists() -> None:
    for panel in (each for each in PANELS if each["type"] != "row"):
        (link,) = panel["links"]
        path, _, anchor = link["url"].partition("#")
        assert (ROOT / path).parent == ROOT / "docs" / "runbooks", panel["title"]
        assert not anchor or anchor in anchors((ROOT / path).read_text(encoding="utf-8")), panel["title"]


def test_every_page_of_alerts_is_linked() -> None:
    linked = {link["url"].partition("#")[0] for panel in PANELS for link in panel.get("links", [])}
    assert {rule["annotations"]["runbook_url"].partition("#")[0] for rule in alerts()} <= linked


def test_metrics_of_objects_are_those_that_kube_state_metrics_makes() -> None:
    file = yaml.safe_load((ROOT / "deploy" / "monitoring" / "custom-resource-state.yaml").read_text(encoding="utf-8"))
    (kind,) = (each for each in file["spec"]["resources"] if each["groupVersionKind"]["kind"] == "GKMCache")
    made = {f"{kind['metricNamePrefix']}_{metric['name']}": metric["each"] for metric in kind["metrics"]}
    read = [each for expression in of_dashboard() for each in expression.selectors() if each.is_of_objects]
    assert len(read) > 10
    for selector in read:
        of_its_own = made[selector.metric]["gauge"]
        labels = {*kind["labelsFromPath"], *of_its_own.get("labelsFromPath", ())}
        assert {label for label, _ in selector.values()} <= labels, selector.text
