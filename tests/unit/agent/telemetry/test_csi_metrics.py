"""The metrics of the CSI process, which the agent of its node serves from a file."""

import json

import pytest
from gkm.hoststate import counters
from gkm.hoststate.counters import BUCKET_BOUNDS, EndedLayers, Histogram, NodeCounters
from gkm.hoststate.layout import Layout
from gkm_agent.telemetry.server import CsiMetrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.host.descriptors_used_up import descriptors_used_up


def page_of(layout: Layout) -> str:
    registry = CollectorRegistry()
    registry.register(CsiMetrics(layout))
    return generate_latest(registry).decode()


def test_what_the_csi_process_counted_is_a_histogram(layout: Layout) -> None:
    publishes = {
        "OK": Histogram().with_observation(0.002).with_observation(0.002).with_observation(0.2),
        "ABORTED": Histogram().with_observation(60.0),
    }
    counters.save(layout, NodeCounters(publishes))

    family, *_ = text_string_to_metric_families(page_of(layout))

    assert (family.name, family.type) == ("gkm_publish_seconds", "histogram")
    samples = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    code = ("code", "OK")
    assert samples[("gkm_publish_seconds_bucket", code, ("le", "0.001"))] == 0
    assert samples[("gkm_publish_seconds_bucket", code, ("le", "0.0025"))] == 2
    assert samples[("gkm_publish_seconds_bucket", code, ("le", "0.25"))] == 3
    assert samples[("gkm_publish_seconds_bucket", code, ("le", "+Inf"))] == 3
    assert samples[("gkm_publish_seconds_count", code)] == 3
    assert samples[("gkm_publish_seconds_sum", code)] == pytest.approx(0.204)
    assert samples[("gkm_publish_seconds_bucket", ("code", "ABORTED"), ("le", "10.0"))] == 0
    assert samples[("gkm_publish_seconds_count", ("code", "ABORTED"))] == 1


def test_what_programs_left_in_private_layers_is_counted(layout: Layout) -> None:
    layers = EndedLayers().with_layer(0).with_layer(4096).with_layer(0)
    counters.save(layout, NodeCounters(layers=layers, without_cache=3))
    page = page_of(layout)
    assert 'gkm_private_layers_total{wrote="no"} 2.0' in page
    assert 'gkm_private_layers_total{wrote="yes"} 1.0' in page
    assert "gkm_private_layer_bytes_total 4096.0" in page
    assert "gkm_volumes_without_cache_total 3.0" in page


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff" * 100,
        b"[" * 60_000,
        json.dumps({"version": 1, "bounds": list(BUCKET_BOUNDS), "publish": {'OK"} 1\ngkm_lie 1': {}}}).encode(),
        json.dumps({"version": 9, "bounds": list(BUCKET_BOUNDS), "publish": {}}).encode(),
    ],
)
def test_invalid_counters_are_left_out_and_logged_once(
    layout: Layout, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = layout.counters
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    registry = CollectorRegistry()
    registry.register(CsiMetrics(layout))

    for _ in range(3):
        assert generate_latest(registry) == b""

    said = [record.getMessage() for record in caplog.records]
    assert said == ["counters file of the CSI driver unreadable, its metrics are left out"]


def test_without_a_csi_process_there_are_no_metrics_of_it(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    assert "gkm_publish_seconds_count" not in page_of(layout)
    assert not caplog.records


def test_counters_that_cannot_be_read_now_cost_no_other_metric(layout: Layout) -> None:
    counters.save(layout, NodeCounters())
    with descriptors_used_up(layout.counters):
        assert page_of(layout) == ""
    assert page_of(layout) != ""
