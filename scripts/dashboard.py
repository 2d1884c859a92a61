"""The Grafana dashboard of the chart, from a table of panels: scripts/generate.py writes it as JSON.

tests/partners/monitoring runs every expression in a real Prometheus that scrapes real processes.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from dashboard_panels import ROWS, RUNBOOKS, WIDTH, Panel

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
        "templating": {
            "list": [
                _source(),
                # Agents outside of a cluster have no label `node`, and a ClusterGKMCache no namespace: all is `.*`.
                _choice("node", "Node", "label_values(gkm_cache_state, node)"),
                _choice("namespace", "Namespace", "label_values(gkm_object_cache_info, namespace)"),
                _choice("cache", "Cache", 'label_values(gkm_object_cache_info{namespace=~"$namespace"}, name)'),
            ]
        },
        "panels": list(_panels()),
    }
    return json.dumps(value, indent=1) + "\n"


def _source() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _choice(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _reference(),
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
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
            place = _place(left, top, panel.width, panel.height)
            yield _panel(next(numbers), panel, place, panel.runbook or RUNBOOKS[title])
            left += panel.width
        top += panels[-1].height


def _place(left: int, top: int, width: int, height: int) -> Json:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: Json, runbook: str) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": _reference(),
        "links": [{"title": "Runbook", "url": f"docs/runbooks/{runbook}", "targetBlank": True}],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_thresholds(panel)}, "overrides": []},
        **(_TABLE if panel.kind == "table" else {}),
        "targets": [_target(panel, *each) for each in enumerate(panel.series.items())],
    }


_TABLE: Json = {"transformations": [{"id": "merge", "options": {}}]}


def _target(panel: Panel, index: int, series: tuple[str, str]) -> Json:
    legend, expression = series
    letter = legend if panel.kind == "table" else chr(ord("A") + index)
    target = {"refId": letter, "datasource": _reference(), "expr": expression, "legendFormat": legend}
    if panel.kind == "timeseries":
        return target
    return target | {"instant": True} | ({"format": "table"} if panel.kind == "table" else {})


def _thresholds(panel: Panel) -> Json:
    """Return the colors of values: a number has one, lines have the limits as lines, and the rest stays neutral."""
    if not panel.thresholds:
        return {"color": {"mode": "fixed", "fixedColor": "text"}} if panel.kind == "stat" else {}
    (_, base), *steps = panel.thresholds
    listed = [{"color": base, "value": None}, *({"color": color, "value": least} for least, color in steps)]
    found: Json = {"thresholds": {"mode": "absolute", "steps": listed}}
    if panel.kind == "stat":
        return found | {"color": {"mode": "thresholds"}}
    return found | {"custom": {"thresholdsStyle": {"mode": "dashed"}}}
