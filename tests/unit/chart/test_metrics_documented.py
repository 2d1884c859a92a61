"""docs/reference/metrics.md has the metrics of every process, with their types and labels."""

import re

import pytest
from gkm.hoststate.counters import EndedLayers, Histogram
from gkm.hoststate.pointers import CacheState
from gkm_agent.telemetry import metrics as agent
from gkm_agent.telemetry.server import kernel_misses, private_layers, publish_seconds, without_cache
from gkm_operator import metrics as operator
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from support.monitoring.expressions import Expression, of_alerts, of_dashboard
from support.monitoring.reference import documented

REGISTRIES = {
    "agent": agent.REGISTRY,
    "controllers": operator.REGISTRY,
    "admission": operator.REGISTRY,
    "provider": operator.REGISTRY,
}
ROWS = documented()
CSI_FAMILIES = {
    family.name + ("_total" if family.type == "counter" else ""): family
    for family in (
        publish_seconds({"OK": Histogram()}),
        *private_layers(EndedLayers()),
        without_cache(0),
        kernel_misses({}),
    )
}
"""The agent serves them from the file of the CSI process: no registry has them."""


def registered(registry: CollectorRegistry) -> dict[str, MetricWrapperBase]:
    """Return the metrics of ours in a registry, by the names that Prometheus has for them."""
    found = [each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase)]
    return {each._name + ("_total" if each._type == "counter" else ""): each for each in found}


@pytest.mark.parametrize("program", REGISTRIES)
def test_every_metric_has_its_type_and_its_labels(program: str) -> None:
    found = registered(REGISTRIES[program])
    for (of, name), row in ROWS.items():
        if of == program and name not in CSI_FAMILIES:
            metric = found[name]
            assert (metric._type, set(metric._labelnames)) == (row.type, set(row.labels)), name


def test_every_metric_is_documented() -> None:
    names = {name for registry in REGISTRIES.values() for name in registered(registry)}
    assert names - {row.name for row in ROWS.values()} == set()


@pytest.mark.parametrize("name", CSI_FAMILIES)
def test_a_metric_of_the_csi_driver_is_documented(name: str) -> None:
    family, row = CSI_FAMILIES[name], ROWS["agent", name]
    assert (row.type, set(row.labels)) == (family.type, family.samples[0].labels.keys() - {"le"})


def test_values_of_labels_are_those_of_the_code() -> None:
    states = frozenset(map(str, CacheState))
    assert ROWS["agent", "gkm_cache_state"].labels["state"] == states
    assert ROWS["agent", "gkm_cache_not_ready"].labels["state"] == states - {"Ready"}
    assert ROWS["agent", "gkm_mounts"].labels["mode"] == frozenset(agent.MODES)


def test_every_metric_is_in_the_dashboard() -> None:
    used = {selector.family for each in of_dashboard() for selector in each.selectors() if not selector.is_of_objects}
    # The time of planning says little: the reconciles have it.
    assert {row.name for row in ROWS.values()} - used == {"gkm_plan_seconds"}


def test_selectors_are_found_in_an_expression() -> None:
    text = 'sum by (pod) (rate(a_total{x="1}", y=~"b|c"}[5m] offset 1h)) / on (pod) group_left (z) b > 0.1 or vector(0)'
    assert [each.text for each in Expression("", text).selectors()] == ['a_total{x="1}", y=~"b|c"}', "b"]
    (first, _) = Expression("", text).selectors()
    assert list(first.values()) == [("x", "1}"), ("y", "b"), ("y", "c")]
    assert all(re.match(r"gkm_|process_|up$|ALERTS$", each.metric) for one in of_alerts() for each in one.selectors())
