"""Draws the dashboard from its JSON, with data of a Prometheus, as SVG: for documentation, without Grafana.

`PYTHONPATH=tests python scripts/dashboard_picture.py FILE` starts the processes of the tests and draws what they did.
"""

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from support.agent.machine import REPOSITORY
from support.cluster.gkm_objects import cache
from support.monitoring.expressions import DASHBOARD, filled
from support.monitoring.prometheus import Prometheus
from support.monitoring.site import Mounted, monitored
from support.operator.accounts import Accounts
from support.operator.seen import TEAM

Json = dict[str, Any]
Line = tuple[str, list[tuple[float, float]]]
Pair = tuple[float, float]
COLUMN, ROW, GAP, HEAD, LEGEND = 60, 30, 6, 24, 13
COLORS = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300")
THRESHOLD_COLORS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c"}
LINES = 10
"""Lines of a panel's legend; more do not fit."""
SECONDS, STEP = 90, 2
FACTORS = {"bytes": ((1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB")), "s": ((1, " s"), (1e-3, " ms"))}


def draw(dashboard: Json, server: Prometheus) -> str:
    """Return the picture of a dashboard."""
    panels = dashboard["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW + HEAD
    about = (
        f"{dashboard['title']}: rendered from the dashboard's JSON with data of the tests' processes, not by Grafana"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="#111217"/>',
        _text(GAP, 16, about, size=12, color="#9fa7b3"),
    ]
    for panel in panels:
        parts += _row(panel) if panel["type"] == "row" else _panel(panel, _lines(panel, server))
    return "\n".join([*parts, "</svg>", ""])


def _lines(panel: Json, server: Prometheus) -> list[Line]:
    found: list[Line] = []
    for target in panel["targets"]:
        for series in server.query_range(filled(target["expr"], "10s"), SECONDS, STEP):
            legend = target["legendFormat"]
            for label, value in series["metric"].items():
                legend = legend.replace(f"{{{{{label}}}}}", value)
            points = [(float(time), float(value)) for time, value in series["values"]]
            found.append((legend.strip(), [point for point in points if math.isfinite(point[1])]))
    return [(legend, points) for legend, points in found if points]


def _row(panel: Json) -> list[str]:
    return [_text(GAP, panel["gridPos"]["y"] * ROW + HEAD + 20, panel["title"], size=14, color="#ffffff")]


def _panel(panel: Json, lines: Sequence[Line]) -> list[str]:
    place = panel["gridPos"]
    left, top = place["x"] * COLUMN + GAP / 2, place["y"] * ROW + HEAD + GAP / 2
    width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    unit = panel["fieldConfig"]["defaults"]["unit"]
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="2" fill="#181b1f" stroke="#2c3235"/>',
        _text(left + 8, top + 16, panel["title"], size=12, color="#ccccdc"),
    ]
    if not lines:
        return [*parts, _text(left + width / 2 - 24, top + height / 2 + 8, "No data", size=12, color="#8e8e99")]
    if panel["type"] == "stat":
        value = lines[0][1][-1][1]
        shown = _number(value, unit)
        return [
            *parts,
            _text(left + width / 2 - 8 * len(shown), top + height / 2 + 24, shown, size=32, color=_color(panel, value)),
        ]
    if panel["type"] == "bargauge":
        return [*parts, *_bars(lines, unit, (left, top), width)]
    return [*parts, *_graph(lines, unit, (left, top), (width, height))]


def _color(panel: Json, value: float) -> str:
    """Return the color of a number: that of the highest threshold that it reaches, or a neutral one."""
    steps = panel["fieldConfig"]["defaults"].get("thresholds", {"steps": []})["steps"]
    reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
    return THRESHOLD_COLORS[reached[-1]] if reached else "#ccccdc"


def _graph(lines: Sequence[Line], unit: str, corner: Pair, size: Pair) -> Iterator[str]:
    (left, top), (width, height) = corner, size
    most = max(value for _, points in lines for _, value in points) * 1.05 or 1.0
    start = min(time for _, points in lines for time, _ in points)
    end = max(*(time for _, points in lines for time, _ in points), start + 1)
    axis, legend = 56, 190
    inner, tall, base = width - axis - legend, height - 40, top + height - 12
    for share in (0.0, 0.5, 1.0):
        y = base - tall * share
        yield f'<line x1="{left + axis}" y1="{y:.0f}" x2="{left + axis + inner:.0f}" y2="{y:.0f}" stroke="#2c3235"/>'
        yield _text(left + 6, y + 4, _number(most * share, unit), size=10, color="#9fa7b3")
    for number, (name, points) in enumerate(lines[:LINES]):
        color = COLORS[number % len(COLORS)]
        at = [
            f"{left + axis + inner * (time - start) / (end - start):.1f},{base - tall * value / most:.1f}"
            for time, value in points
        ]
        yield f'<polyline points="{" ".join(at)}" fill="none" stroke="{color}" stroke-width="1.5"/>'
        yield _text(left + width - legend + 8, top + 34 + LEGEND * number, name[:34], size=10, color=color)
    if len(lines) > LINES:
        more = f"and {len(lines) - LINES} more"
        yield _text(left + width - legend + 8, top + 34 + LEGEND * LINES, more, size=10, color="#9fa7b3")


def _bars(lines: Sequence[Line], unit: str, corner: Pair, width: float) -> Iterator[str]:
    left, top = corner
    most = max(points[-1][1] for _, points in lines) or 1.0
    for number, (name, points) in enumerate(lines[:LINES]):
        y, long = top + 30 + number * 32, (width - 60) * points[-1][1] / most
        yield _text(left + 8, y + 8, name, size=10, color="#ccccdc")
        yield f'<rect x="{left + 8}" y="{y + 12:.0f}" width="{long:.0f}" height="10" fill="#73bf69"/>'
        yield _text(left + width - 44, y + 21, _number(points[-1][1], unit), size=10, color="#ccccdc")


def _number(value: float, unit: str) -> str:
    for factor, name in FACTORS.get(unit.replace("Bps", "bytes"), ()):
        if value >= factor:
            return f"{value / factor:.3g}{name}"
    return f"{value:.3g}"


def _text(x: float, y: float, text: str, *, size: int, color: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{color}">{escape(text)}</text>'


def _busy(place: Accounts, mounted: Mounted) -> None:
    """Declare and mount more caches, so that there is something to see."""
    image = f"{place.machine.registry.host}/{REPOSITORY}:1"
    for name in (f"llama-{number}" for number in range(12)):
        place.cluster.apply(cache(name, TEAM, image))
        mounted.misses(f"early-{name}", f"not-{name}", "is not known")
        place.cluster.until(lambda name=name: place.seen.is_ready(name, TEAM), "it is ready")  # type: ignore[misc]
        for number in range(3):
            mounted.publish(f"{name}-{number}", name)


def main() -> int:
    """Write the picture; return the exit code."""
    with tempfile.TemporaryDirectory() as directory, monitored(Path(directory)) as (place, server, mounted):
        _busy(place, mounted)
        value = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        Path(sys.argv[1]).write_text(draw(value, server), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
