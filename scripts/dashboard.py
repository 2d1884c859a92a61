"""The Grafana dashboard of the chart, from a table of panels: scripts/generate.py writes it as JSON.

tests/partners/monitoring runs every expression in a real Prometheus that scrapes real processes.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from dashboard_panels import ROWS, WIDTH, Panel

Json = dict[str, Any]


def dashboard() -> str:
    """Return the dashboard as JSON."""
    value = {
        "uid": "gkm",
        "title": "GKM",
        "description": "Kernel caches, domains and placement. Alerts and runbooks: docs/runbooks.",
        "tags": ["gkm", "gpu"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), _nodes()]},
        "panels": list(_panels()),
    }
    return json.dumps(value, indent=1) + "\n"


def _source() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _nodes() -> Json:
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": _reference(),
        "query": {"query": "label_values(gkm_cache_state, node)", "refId": "node"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Agents outside of a cluster have no label `node`.
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _reference() -> Json:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[Json]:
    """Yield rows and panels from left to right, and from top to bottom."""
    numbers, top = count(1), 0
    for title, panels in ROWS.items():
        yield {
            "id": next(numbers),
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": _place(0, top, WIDTH, 1),
        }
        top, left = top + 1, 0
        for panel in panels:
            if left + panel.width > WIDTH:
                top, left = top + panel.height, 0
            yield _panel(next(numbers), panel, _place(left, top, panel.width, panel.height))
            left += panel.width
        top += panels[-1].height


def _place(left: int, top: int, width: int, height: int) -> Json:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: Json) -> Json:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _reference(), "expr": expression, "legendFormat": legend}
        | ({"instant": True} if panel.kind != "timeseries" else {})
        for index, (legend, expression) in enumerate(panel.series.items())
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": _reference(),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }
