"""The expressions of the dashboard and of the alerts, and what each selects."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from support.chart.helm import CHART

DASHBOARD, ALERTS = CHART / "files" / "dashboard.json", CHART / "files" / "alerts.yaml"
_WORDS = frozenset({"and", "or", "unless"})
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_TOKEN = re.compile(
    r"\[[^\]]*\]|\boffset\s+\w+|\b\d[\w.]*"
    r'|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?P<matchers>\{(?:[^"}]|"[^"]*")*\})?\s*(?P<called>\(?)'
)
_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@dataclass(frozen=True)
class Expression:
    """One expression, and where it stands."""

    place: str
    text: str

    def selectors(self) -> Iterator["Selector"]:
        """Yield what it reads: every word that is neither a function nor a keyword names a metric."""
        for found in _TOKEN.finditer(_GROUPING.sub(" ", self.text)):
            name = found["name"]
            if name and not found["called"] and name not in _WORDS:
                yield Selector(name, found["matchers"] or "")


@dataclass(frozen=True)
class Selector:
    """A metric and its matchers, as they are written."""

    metric: str
    matchers: str

    @property
    def text(self) -> str:
        return self.metric + self.matchers

    @property
    def family(self) -> str:
        """The name under which the metric is documented."""
        return re.sub(r"_(?:bucket|count|sum)$", "", self.metric)

    @property
    def is_of_objects(self) -> bool:
        """Return whether kube-state-metrics makes it, and no process of ours."""
        return self.metric.startswith("gkm_object_")

    def values(self) -> Iterator[tuple[str, str]]:
        """Yield label and value of each matcher; a regular expression of several words has several."""
        for label, _, value in _MATCHER.findall(self.matchers):
            for word in value.split("|"):
                yield label, word


def of_dashboard(text: str | None = None) -> list[Expression]:
    """Return the expressions of all panels, with values for Grafana's variables."""
    value = json.loads(text or DASHBOARD.read_text(encoding="utf-8"))
    return [
        Expression(f"panel {panel['title']!r}", filled(target["expr"], "1m"))
        for panel in value["panels"]
        for target in panel.get("targets", [])
    ]


def of_alerts() -> list[Expression]:
    return [Expression(f"alert {rule['alert']}", rule["expr"]) for rule in alerts()]


def alerts() -> list[dict[str, Any]]:
    value = yaml.load(ALERTS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return [rule for group in value["groups"] for rule in group["rules"]]


def filled(text: str, interval: str) -> str:
    """Return an expression with values for Grafana's variables: all objects, rates over an interval such as `1m`."""
    return re.sub(r"\$(?:node|namespace|cache)\b", ".*", text.replace("$__rate_interval", interval))
