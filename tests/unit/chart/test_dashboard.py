"""The layout of the dashboard. Its expressions: tests/partners/monitoring."""

import json
from itertools import combinations
from typing import Any

from support.monitoring.expressions import DASHBOARD

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
    (source, nodes) = VALUE["templating"]["list"]
    wanted = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    assert nodes["datasource"] == wanted
    for panel in PANELS:
        assert all(target["datasource"] == wanted for target in panel.get("targets", []))
        letters = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(letters)) == len(letters)
