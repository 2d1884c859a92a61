"""The metrics of the agent in the text format of Prometheus: documented names, and labels with fixed sets of values."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Fault, Inventory
from gkm.hoststate import counters
from gkm.hoststate.counters import BUCKET_BOUNDS, Histogram
from gkm.hoststate.layout import Layout
from gkm.images.pulling.pull import PullStage
from gkm.images.signatures.verify import Verdict
from gkm_agent.pulls.images import timed_stages, timed_verification
from gkm_agent.telemetry import metrics
from gkm_agent.telemetry.server import CsiMetrics
from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.agent.fakes import A100, H100, FakeImages, digest_of
from support.agent.node import IMAGE, Node

PAGE_NAMES = {
    "gkm_pull_seconds": {"stage"},
    "gkm_pull_bytes": set(),
    "gkm_cache_state": {"state"},
    "gkm_incompatible": {"reason"},
    "gkm_store_bytes": set(),
    "gkm_gc_bytes": set(),
    "gkm_nvml_errors": {"call"},
    "gkm_mounts": {"mode"},
    "gkm_verify_seconds": {"result"},
    "gkm_api_requests": {"verb", "code"},
}
"""The agent's metrics; the parser removes _total from the name of a counter."""


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def change(name: str, **labels: str) -> Callable[[], float]:
    """Return what tells by how much a value of the page has changed since now."""
    before = value(name, **labels)
    return lambda: value(name, **labels) - before


def test_the_page_has_the_names_and_labels_that_are_api() -> None:
    metrics.PULL_SECONDS.labels("resolve").observe(0.1)
    metrics.VERIFY_SECONDS.labels("verified").observe(0.1)
    metrics.count_incompatible(Reason.NO_GPU)
    metrics.gpus_read(Inventory(errors=("nvmlInit: broken",)))
    metrics.api_answered("list", 200)
    metrics.CACHE_STATE.labels("Ready").set(1)
    for mode in metrics.MODES:
        metrics.MOUNTS.labels(mode).set(0)

    page = metrics.page()

    assert page.content_type == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(page.body.decode())}
    for name, labels in PAGE_NAMES.items():
        used = {label for sample in found[name].samples for label in sample.labels} - {"le"}
        assert used == labels, name
    assert {name for name in found if name.startswith("gkm_")} == set(PAGE_NAMES)
    assert not [name for name in found if name.endswith("_created")]


def test_a_node_counts_its_caches_its_mounts_and_its_bytes(node: Node) -> None:
    collected = change("gkm_gc_bytes_total")
    node.want("one", "two")
    node.mount(digest_of("one"))
    node.settle()

    assert value("gkm_cache_state", state="Ready") == 2
    assert value("gkm_cache_state", state="Failed") == 0
    assert value("gkm_mounts", mode="read-only") == 1
    size = len(digest_of("one"))  # what the fake writes as its one file
    assert value("gkm_store_bytes") == size

    node.want()
    node.unmount()
    node.settle()
    node.now += 1e6
    node.settle()
    assert not node.entries()
    assert value("gkm_cache_state", state="Ready") == 0
    assert value("gkm_mounts", mode="read-only") == 0
    assert value("gkm_store_bytes") == 0
    assert collected() == size


def test_what_fits_no_gpu_counts_once_by_its_reason_however_often_it_is_seen(node: Node) -> None:
    mismatches = change("gkm_incompatible_total", reason="ArchitectureMismatch")
    node.read_gpus(Inventory((A100,)))
    node.want("one", "two")
    for _ in range(3):
        node.settle()
    assert mismatches() == 2

    node.read_gpus(Inventory((H100,)))
    node.settle()
    assert mismatches() == 2

    node.read_gpus(Inventory((A100,)))
    node.settle()
    assert mismatches() == 4


def test_a_reason_that_is_none_of_ours_makes_no_label() -> None:
    others = change("gkm_incompatible_total", reason="other")
    metrics.count_incompatible("ml-apps/llama\n")
    assert others() == 1


def test_calls_to_the_driver_that_failed_are_counted_each_reading() -> None:
    memory = change("gkm_nvml_errors_total", call="nvmlDeviceGetMemoryInfo")
    init = change("gkm_nvml_errors_total", call="nvmlInit")
    other = change("gkm_nvml_errors_total", call="other")
    faulty = structs.replace(H100, faults=(Fault("nvmlDeviceGetMemoryInfo", "GPU_IS_LOST", "lost"),))

    metrics.gpus_read(Inventory((faulty, faulty)))
    metrics.gpus_read(Inventory((H100,), errors=("nvmlInit: no", "GPUs cannot be read: no answer within 30 s")))

    assert (memory(), init(), other()) == (2, 1, 1)


def test_a_driver_that_makes_names_up_makes_no_labels_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_calls", set())
    metrics.NVML_ERRORS.clear()
    made_up = [Fault(f"nvmlDeviceMadeUp{number}", "UNKNOWN", "") for number in range(500)]
    for fault in made_up:
        metrics.gpus_read(Inventory((structs.replace(H100, faults=(fault,)),)))

    family = next(family for family in metrics.REGISTRY.collect() if family.name == "gkm_nvml_errors")
    assert len({sample.labels["call"] for sample in family.samples}) == 65
    metrics.NVML_ERRORS.clear()


@pytest.mark.parametrize(
    ("verified", "allowed", "result"),
    [(True, True, "verified"), (False, True, "admitted"), (None, True, "admitted"), (False, False, "refused"),
     (None, False, "refused")],
)  # fmt: skip
def test_verification_is_timed_by_what_it_came_to(*, verified: bool | None, allowed: bool, result: str) -> None:
    counted = change("gkm_verify_seconds_count", result=result)
    verdict = Verdict(verified, allowed, Reason.COSIGN_SUCCESS, "")

    assert timed_verification(lambda: verdict) is verdict
    assert counted() == 1


def test_verification_that_fails_counts_as_an_error() -> None:
    counted = change("gkm_verify_seconds_count", result="error")

    def fail() -> Verdict:
        raise GKMError(Reason.REGISTRY_UNAVAILABLE, "away")

    with pytest.raises(GKMError):
        timed_verification(fail)
    assert counted() == 1


def test_the_stages_of_a_fetch_are_timed_from_its_progress() -> None:
    download = change("gkm_pull_seconds_count", stage="download")
    extract = change("gkm_pull_seconds_count", stage="extract")
    told: list[tuple[PullStage, int]] = []

    with timed_stages(lambda stage, percent: told.append((stage, percent))) as record:
        for stage, percent in ((PullStage.DOWNLOADING, 0), (PullStage.DOWNLOADING, 100), (PullStage.EXTRACTING, 50)):
            record(stage, percent)

    assert told == [(PullStage.DOWNLOADING, 0), (PullStage.DOWNLOADING, 100), (PullStage.EXTRACTING, 50)]
    assert (download(), extract()) == (1, 1)


def test_a_fetch_that_finds_its_entry_there_or_is_called_off_counts_what_it_did() -> None:
    download = change("gkm_pull_seconds_count", stage="download")
    extract = change("gkm_pull_seconds_count", stage="extract")
    with timed_stages(lambda _stage, _percent: None):
        pass
    assert (download(), extract()) == (0, 0)

    def called_off(_stage: PullStage, _percent: int) -> None:
        raise GKMError(Reason.REGISTRY_UNAVAILABLE, "away")

    with timed_stages(called_off) as record, pytest.raises(GKMError):
        record(PullStage.DOWNLOADING, 3)
    assert (download(), extract()) == (1, 0)


def page_of(layout: Layout) -> str:
    registry = CollectorRegistry()
    registry.register(CsiMetrics(layout))
    return generate_latest(registry).decode()


def test_what_the_csi_process_counted_is_a_histogram(layout: Layout) -> None:
    counters.save(
        layout,
        {
            "OK": Histogram().with_observation(0.002).with_observation(0.002).with_observation(0.2),
            "ABORTED": Histogram().with_observation(60.0),
        },
    )

    (family,) = text_string_to_metric_families(page_of(layout))

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
    assert said == ["counters of the CSI process refused"]


def test_without_a_csi_process_there_are_no_metrics_of_it(layout: Layout, caplog: pytest.LogCaptureFixture) -> None:
    assert "gkm_publish_seconds_count" not in page_of(layout)
    assert not caplog.records


def test_names_that_users_chose_are_on_no_page(node: Node, tmp_path: Path) -> None:
    del tmp_path
    images: FakeImages = node.images
    images.failures["verify"] = GKMError(Reason.SIGNATURE_INVALID, "user-chosen-message")
    node.want("user-chosen-name", image=IMAGE.replace("cache", "user-chosen-image"))
    node.source.wanted = [replace(cache, digest=digest_of("user-chosen-digest")) for cache in node.source.wanted]
    node.settle()

    assert value("gkm_cache_state", state="Failed") == 1
    page = metrics.page().body.decode()
    assert "user-chosen" not in page
    assert digest_of("user-chosen-digest") not in page
