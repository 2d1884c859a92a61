"""The metrics of the agent in the text format of Prometheus: documented names, and labels with fixed sets of values."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.gpus.values import Fault, Inventory
from gkm.images.pulling.pull import PullStage
from gkm.images.signatures.verify import Verdict
from gkm_agent.pulls.images import timed_stages, timed_verification
from gkm_agent.telemetry import metrics
from gkm_agent.telemetry.health import Heartbeat
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families
from support.agent.fakes import A100, H100, FakeImages, digest_of
from support.agent.node import IMAGE, Node

PAGE_NAMES = {
    "gkm_pull_seconds": {"stage"},
    "gkm_pull_bytes": set(),
    "gkm_cache_state": {"state"},
    "gkm_cache_not_ready": {"state", "reason"},
    "gkm_incompatible": {"reason"},
    "gkm_store_bytes": set(),
    "gkm_gc_bytes": set(),
    "gkm_captures": {"result"},
    "gkm_capture_bytes": set(),
    "gkm_capture_failures": {"reason"},
    "gkm_nvml_errors": {"call"},
    "gkm_nvlink_errors": {"kind"},
    "gkm_mounts": {"mode"},
    "gkm_no_cache_for_hardware": {"pods"},
    "gkm_verify_seconds": {"result"},
    "gkm_api_requests": {"verb", "code"},
    "gkm_last_success_timestamp_seconds": {"task"},
    "gkm_ready": {"program"},
    "gkm_build_info": {"program", "version", "python"},
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
    metrics.NOT_READY.labels("Failed", Reason.DISK_FULL).set(0)
    metrics.CAPTURES.labels("Announced").inc(0)
    metrics.count_capture_failure(Reason.DISK_FULL)
    metrics.LINK_ERRORS.labels("replay").inc(0)
    metrics.succeeded("pass")
    metrics.record_build()
    metrics.READY.labels(metrics.PROGRAM).set(1)
    for mode in metrics.MODES:
        metrics.MOUNTS.labels(mode).set(0)
    metrics.NO_CACHE_FOR_HARDWARE.labels("started").set(0)

    page = metrics.page()

    assert page.content_type == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(page.body.decode())}
    for name, labels in PAGE_NAMES.items():
        used = {label for sample in found[name].samples for label in sample.labels} - {"le"}
        assert used == labels, name
    assert {name for name in found if name.startswith("gkm_")} == set(PAGE_NAMES)
    assert not [name for name in found if name.endswith("_created")]


def test_only_a_success_has_a_time() -> None:
    before = time.time()
    Heartbeat().beat(succeeded=True)
    metrics.gpus_read(Inventory())
    assert value("gkm_last_success_timestamp_seconds", task="pass") >= before
    assert value("gkm_last_success_timestamp_seconds", task="gpus") >= before
    since = time.time()
    Heartbeat().beat(succeeded=False)
    metrics.gpus_read(Inventory(errors=("nvmlInit: broken",)))
    assert value("gkm_last_success_timestamp_seconds", task="pass") <= since
    assert value("gkm_last_success_timestamp_seconds", task="gpus") <= since


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


def test_caches_that_are_not_ready_count_by_their_reason_until_it_is_gone(node: Node) -> None:
    def mismatches() -> float:
        return value("gkm_cache_not_ready", state="Incompatible", reason="ArchitectureMismatch")

    node.read_gpus(Inventory((A100,)))
    node.want("one", "two")
    node.settle()
    assert mismatches() == 2

    node.want("one")
    node.settle()
    assert mismatches() == 1

    node.read_gpus(Inventory((H100,)))
    node.settle()
    assert mismatches() == 0
    assert value("gkm_cache_state", state="Ready") == 1


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


def test_errors_of_links_are_counted_by_their_kind() -> None:
    replays, recoveries = (change("gkm_nvlink_errors_total", kind=kind) for kind in ("replay", "recovery"))
    metrics.link_errors_grew(5, 2)
    metrics.link_errors_grew(0, 0)
    assert (replays(), recoveries()) == (5, 2)


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

    with pytest.raises(GKMError, match="away"):
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

    with timed_stages(called_off) as record, pytest.raises(GKMError, match="away"):
        record(PullStage.DOWNLOADING, 3)
    assert (download(), extract()) == (1, 0)


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
