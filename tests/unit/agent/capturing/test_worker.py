"""A capture becomes one signed and attested image that a node pulls, over a real registry with faults."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from gkm.api.capture_settings import CapturedCaches
from gkm.api.errors import Reason
from gkm.api.policies import Policy, Verification
from gkm.gpus.values import Gpu
from gkm.images import cache
from gkm.images.captured.content import PREDICATE_TYPE
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from gkm.images.signatures.attestations import attestations
from gkm.images.signatures.verify import Verifier
from gkm_agent.capturing import progress
from gkm_agent.capturing.progress import CaptureState
from gkm_agent.capturing.steps import CaptureSteps
from gkm_agent.store import captures
from gkm_agent.store.captures import CapturesInUse
from gkm_agent.telemetry import metrics
from prometheus_client import Counter
from prometheus_client.samples import Sample
from support.agent.capturing import B200_KERNEL, H100_KERNEL, CaptureNode, write_key
from support.agent.fakes import A100
from support.host.descriptors_used_up import descriptors_used_up
from support.host.unlistable import unlistable
from support.host.waiting import until
from support.images.directories import KEY, RANK, component, kernel
from support.images.vllm import put
from support.registry.faults import status
from support.registry.server import Registry


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> CaptureNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return made


def verdict(node: CaptureNode, image: str, public_key: bytes) -> bool:
    policy = Verification(policies=[Policy(keys=[public_key.decode()], tlog="ignored")])
    ref = Reference.parse(image)
    return Verifier(policy).verify(Client(node.config.registries), ref, "ml-apps").verified is True


def test_a_capture_becomes_a_signed_image_with_the_list_of_its_files(node: CaptureNode) -> None:
    content, key = node.capture(), write_key(node.key_file)
    worker = node.worker()

    assert worker.make_images()

    (report,) = worker.reports()["ml-apps"]
    assert report.state == "Announced"
    assert (report.runtime, report.version, report.backend, report.arch) == ("triton", "3.9.0", "cuda", "sm_90")
    assert report.driver == "570.86.15"
    assert (report.pod, report.files) == ("trainer-0", len(list(content.glob("*/*"))))
    assert report.image.startswith(f"{node.registry}/captured/ml-apps/triton@sha256:")
    assert report.content_digest is not None
    assert report.name == f"captured-triton-sm90-{report.content_digest[7:19]}"
    assert verdict(node, report.image, key.public.pem)
    ref, client = Reference.parse(report.image), Client(node.config.registries)
    (attestation,) = attestations(client, ref, PREDICATE_TYPE)
    assert attestation.size > 0
    described = cache.describe(client, ref)
    assert [target.arch_name for target in described.targets] == ["sm_90"]
    stored = pull.fetch(client, described, node.layout, max_bytes=1 << 30, reservation=None, progress=lambda *_: None)
    fetched = node.layout.entry(stored.digest) / "cache"
    assert {path.relative_to(fetched): path.read_bytes() for path in fetched.rglob("*") if path.is_file()} == {
        path.relative_to(content): path.read_bytes() for path in content.rglob("*") if path.is_file()
    }
    assert not (content.parent / "image").exists()


def test_nothing_is_done_twice(node: CaptureNode, registry: Registry) -> None:
    node.capture()
    node.worker().make_images()
    before = len(registry.requests)
    assert node.worker().make_images()
    assert len(registry.requests) == before


def test_a_capture_whose_progress_cannot_be_read_now_does_not_begin_anew(
    node: CaptureNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, again, now = node.capture().parent, list[Path](), [0.0]
    assert node.worker().make_images()
    done, worker = progress.load(directory), node.worker(clock=lambda: now[0])

    def advance(_steps: CaptureSteps, path: Path, _others: object) -> progress.Progress:
        again.append(path)
        return done

    monkeypatch.setattr(CaptureSteps, "advance", advance)
    with (
        descriptors_used_up(directory / progress.PROGRESS_FILE),
        pytest.raises(OSError, match="Too many open files"),
    ):
        worker.make_images()
    assert again == [], "its image is packed and pushed again"
    now[0] += 3600.0
    assert worker.make_images()


def test_leftovers_that_stay_at_first_are_no_failure_once_they_are_gone(
    node: CaptureNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a capture that is packed again later waits, in the reports, for a disk that is sound."""
    content, now = node.capture(), [0.0]
    worker, remove = node.worker(clock=lambda: now[0]), CaptureSteps.remove_leftovers

    def refused(directory: Path, *, besides: str = "") -> None:
        if progress.load(directory).state.is_final:
            raise OSError(errno.EIO, "Input/output error")
        remove(directory, besides=besides)

    with monkeypatch.context() as patched:
        patched.setattr(CaptureSteps, "remove_leftovers", staticmethod(refused))
        assert not worker.make_images()
    now[0] += 3600.0
    assert worker.make_images()
    assert not (content.parent / "image").exists()


def test_equal_content_of_two_pods_is_one_image_in_each_namespace(node: CaptureNode) -> None:
    for volume, namespace in (("csi-1", "ml-apps"), ("csi-2", "ml-apps"), ("csi-3", "other")):
        node.capture(volume, namespace=namespace)
    worker = node.worker()
    assert worker.make_images()
    states = {each.volume: each.state for listed in worker.reports().values() for each in listed}
    assert states == {"csi-1": "Announced", "csi-2": "Duplicate", "csi-3": "Announced"}
    assert [each.reason for each in worker.reports()["ml-apps"] if each.volume == "csi-2"] == [Reason.NOT_REQUIRED]
    first, other = (worker.reports()[name] for name in ("ml-apps", "other"))
    assert first[-1].image.partition("@")[2] == other[0].image.partition("@")[2]


@pytest.mark.parametrize(
    ("time", "statements"), [("2026-01-16T00:00:00Z", 1), ("2026-01-16T00:00:01Z", 2), ("2025-12-01T00:00:00Z", 2)]
)
def test_a_node_states_the_same_again_only_where_the_stated_time_is_much_different(
    node: CaptureNode, registry: Registry, tmp_path: Path, time: str, statements: int
) -> None:
    node.settings = {"caches": CapturedCaches(max_age=30 * 86_400.0 + 1)}
    node.capture()
    image = node.announced("csi-1").image
    second = CaptureNode(tmp_path / "second", registry.host, settings=node.settings)
    second.root.mkdir()
    second.key_file.write_bytes(node.key_file.read_bytes())
    second.capture("csi-2", start_time=time)
    assert second.announced("csi-2").image == image
    found = attestations(Client(node.config.registries), Reference.parse(image), PREDICATE_TYPE)
    assert len(found) == statements


def test_what_the_mounted_cache_has_already_is_not_packed(node: CaptureNode, registry: Registry) -> None:
    node.capture("csi-1")
    worker = node.worker()
    worker.make_images()
    (report,) = worker.reports()["ml-apps"]
    client = Client(node.config.registries)
    stored = pull.fetch(
        client,
        cache.describe(client, Reference.parse(report.image)),
        node.layout,
        max_bytes=1 << 30,
        reservation=None,
        progress=lambda *_: None,
    )
    node.capture("csi-2", namespace="other", digest=stored.digest)
    node.worker().make_images()
    assert node.progress("csi-2").state is CaptureState.DUPLICATE
    assert stored.digest in node.progress("csi-2").message
    assert not registry.seen("POST", "/v2/captured/other/")


def stored(node: CaptureNode, image: str) -> tuple[str, set[str]]:
    """Pull an image as a node does; return its digest and the paths of its files in the store."""
    client = Client(node.config.registries)
    described = cache.describe(client, Reference.parse(image))
    found = pull.fetch(client, described, node.layout, max_bytes=1 << 30).path / "cache"
    return described.digest, {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}


def test_what_vllm_and_triton_left_in_directories_of_their_own_is_one_image_of_two_caches(node: CaptureNode) -> None:
    content = node.capture(kernels=())
    component(content)
    kernel(content, "triton")
    put(content, "triton/notes.md")
    report = node.announced("csi-1")
    assert (report.runtime, report.version, report.name[:26]) == ("vllm-triton", "", "captured-vllm-triton-sm90-")
    assert report.image.startswith(f"{node.registry}/captured/ml-apps/vllm-triton@sha256:")
    _, files = stored(node, report.image)
    assert {path.partition("/")[0] for path in files} == {"vllm", "triton"}
    assert f"triton/{KEY}/fwd.cubin" in files
    assert {file.path for file in progress.load_files(content.parent)} == files


def test_kernels_in_the_directory_of_triton_alone_are_an_image_of_triton(node: CaptureNode) -> None:
    content = node.capture(kernels=())
    kernel(content, "triton")
    report = node.announced("csi-1")
    assert (report.runtime, report.version) == ("triton", "3.9.0")
    assert stored(node, report.image)[1] == {f"{KEY}/{name}" for name in ("fwd.json", "fwd.cubin", "__grp__fwd.json")}


def test_a_model_that_is_not_complete_holds_up_no_kernels(node: CaptureNode) -> None:
    """The pod ended while vLLM compiled."""
    content = node.capture(kernels=())
    put(content, f"{RANK}/backbone/artifact_compile_range_1_8192_subgraph_0")
    kernel(content, "triton")
    report = node.announced("csi-1")
    assert (report.runtime, report.files) == ("triton", 3)


def test_kernels_that_one_of_the_mounted_caches_has_are_not_packed(node: CaptureNode, registry: Registry) -> None:
    content = node.capture(kernels=())
    component(content)
    kernel(content, "triton")
    digest, _ = stored(node, node.announced("csi-1").image)
    kernel(node.capture("csi-2", namespace="other", digest=digest, kernels=()), "triton")
    node.worker().make_images()
    assert node.progress("csi-2").state is CaptureState.DUPLICATE
    assert not registry.seen("POST", "/v2/captured/other/")


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/uploads/", 507, Reason.REGISTRY_UNAVAILABLE),  # full
        ("/uploads/", 429, Reason.REGISTRY_UNAVAILABLE),
        ("/uploads/", 401, Reason.UNAUTHORIZED),  # expired
        ("/manifests/", 403, Reason.UNAUTHORIZED),
        ("/manifests/sha256-", 507, Reason.REGISTRY_UNAVAILABLE),
    ],
)
def test_a_registry_that_refuses_is_tried_again_and_nothing_is_lost(
    node: CaptureNode, registry: Registry, path: str, code: int, reason: Reason
) -> None:
    node.capture()
    registry.misbehave(status(path, code, headers={"Retry-After": "0"}))
    worker = node.worker()
    assert not worker.make_images()
    (report,) = worker.reports()["ml-apps"]
    assert (report.state, report.reason) == ("Waiting", reason)
    assert report.message

    requests = len(registry.requests)
    assert not worker.make_images()  # not yet
    assert len(registry.requests) == requests

    registry.behave()
    node.now += 60
    assert worker.make_images()
    assert [each.state for each in worker.reports()["ml-apps"]] == ["Announced"]


def test_a_key_that_is_replaced_signs_from_the_next_attempt_on(node: CaptureNode, registry: Registry) -> None:
    node.capture()
    first = write_key(node.key_file)
    registry.misbehave(status("/referrers/", 503, headers={"Retry-After": "0"}))
    worker = node.worker()
    assert not worker.make_images()
    assert node.progress().state is CaptureState.PUSHED

    registry.behave()
    second = write_key(node.key_file)
    node.now += 60
    assert worker.make_images()
    image = worker.reports()["ml-apps"][0].image
    assert verdict(node, image, second.public.pem)
    assert first.public.pem != second.public.pem


def test_a_key_that_is_replaced_before_the_statement_signs_the_image_too(node: CaptureNode) -> None:
    node.capture()
    worker = node.worker()
    while node.progress().state is not CaptureState.SIGNED:
        worker._steps.advance(node.layout.captured / "csi-1", [])
    second = write_key(node.key_file)
    assert worker.make_images()
    assert verdict(node, worker.reports()["ml-apps"][0].image, second.public.pem)


def test_without_a_key_it_waits(node: CaptureNode) -> None:
    node.capture()
    node.key_file.unlink()
    worker = node.worker()
    assert not worker.make_images()
    assert worker.reports()["ml-apps"][0].reason == Reason.SIGNATURE_INVALID
    write_key(node.key_file)
    node.now += 60
    assert worker.make_images()


def test_an_image_that_the_registry_lost_is_pushed_again(node: CaptureNode, registry: Registry) -> None:
    node.capture()
    worker = node.worker()
    while node.progress().state is not CaptureState.PUSHED:
        worker._steps.advance(node.layout.captured / "csi-1", [])
    registry.store.repositories.clear()
    assert not worker.make_images()
    assert node.progress().state is CaptureState.PACKED
    node.now += 60
    assert worker.make_images()
    assert worker.reports()["ml-apps"][0].state == "Announced"


def test_a_packed_image_that_was_damaged_is_packed_again(node: CaptureNode) -> None:
    content = node.capture()
    worker = node.worker()
    while node.progress().state is not CaptureState.PACKED:
        worker._steps.advance(node.layout.captured / "csi-1", [])
    before = node.progress().digest
    for blob in (content.parent / "image" / "blobs").rglob("*"):
        if blob.is_file():
            blob.write_bytes(b"")
    assert not worker.make_images()
    node.now += 60
    assert worker.make_images()
    assert node.progress().digest == before


@pytest.mark.parametrize(("gpus", "reason"), [((), Reason.NO_GPU), ((A100,), Reason.ARCHITECTURE_MISMATCH)])
def test_the_hardware_is_what_was_measured(node: CaptureNode, gpus: tuple[Gpu, ...], reason: Reason) -> None:
    node.capture()
    node.gpus = gpus
    worker = node.worker()
    assert worker.make_images() is (reason is not Reason.NO_GPU)
    (report,) = worker.reports()["ml-apps"]
    assert report.reason == reason
    assert report.state == ("Waiting" if reason is Reason.NO_GPU else "Refused")


def test_a_copy_that_failed_is_reported_and_counted_as_a_refused_capture(node: CaptureNode) -> None:
    node.capture()
    place = node.layout.captured / "csi-1"
    described = json.loads((place / "captured.json").read_text())
    lost = {"reason": "DiskFull", "message": "the files of the pod were not copied"}
    (place / "captured.json").write_text(json.dumps({**described, "files": 0, "bytes": 0, "lost": lost}))
    shutil.rmtree(place / "content")
    before = refused()
    worker = node.worker()

    assert worker.make_images()

    (report,) = worker.reports()["ml-apps"]
    assert (report.state, report.pod) == ("Refused", "trainer-0")
    assert (report.reason, report.message) == ("DiskFull", "the files of the pod were not copied")
    assert refused() == before + 1
    assert node.worker().make_images()
    assert refused() == before + 1


def refused() -> float:
    (found,) = [each.value for each in samples(metrics.CAPTURES) if each.labels == {"result": "Refused"}] or [0.0]
    return found


def test_kernels_of_two_gpus_are_refused(node: CaptureNode, registry: Registry) -> None:
    node.capture(kernels=(H100_KERNEL, B200_KERNEL))
    worker = node.worker()
    assert worker.make_images()
    assert worker.reports()["ml-apps"][0].state == "Refused"
    assert not registry.requests


def test_a_capture_that_is_removed_meanwhile_is_forgotten(node: CaptureNode, registry: Registry) -> None:
    node.capture()
    registry.misbehave(status("/v2/", 503, headers={"Retry-After": "0"}))
    worker = node.worker()
    assert not worker.make_images()
    captures.sweep(node.layout, node.config.capture, 9e12, CapturesInUse())
    assert worker.make_images()
    assert worker.reports() == {}


def test_a_progress_file_that_is_not_ours_starts_anew(node: CaptureNode) -> None:
    content = node.capture()
    (content.parent / "progress.json").write_text(json.dumps({"state": "Signed", "files": -1}))
    worker = node.worker()
    assert worker.make_images()
    assert worker.reports()["ml-apps"][0].state == "Announced"


def test_a_full_disk_waits_until_there_is_space(node: CaptureNode, registry: Registry) -> None:
    node.capture()
    node.spare_bytes = 1000
    worker = node.worker()
    assert not worker.make_images()
    assert worker.reports()["ml-apps"][0].reason == Reason.DISK_FULL
    assert not registry.requests
    node.spare_bytes, node.now = 1 << 40, 60.0
    assert worker.make_images()
    assert worker.reports()["ml-apps"][0].state == "Announced"


@pytest.mark.parametrize("registry_set", [True, False])
def test_the_counters_of_captures_begin_with_0_before_the_first_capture(
    node: CaptureNode, *, registry_set: bool
) -> None:
    node.settings = {} if registry_set else {"mode": "off"}
    for counter in (metrics.CAPTURES, metrics.CAPTURE_FAILURES):
        counter.clear()
    worker = node.worker()
    worker.start()
    worker.stop(10)
    values = [each.value for counter in (metrics.CAPTURES, metrics.CAPTURE_FAILURES) for each in samples(counter)]
    expected = 3 + len(metrics.CAPTURE_FAILURE_REASONS) if registry_set else 0
    assert values == [0.0] * expected


def test_captures_that_cannot_be_listed_stop_no_start(node: CaptureNode) -> None:
    node.capture()
    worker = node.worker()
    with unlistable(node.layout.captured):
        worker.start()
    node.layout.captured.touch()  # as for another capture, for which it waits
    until(worker.reports, "the captures can be listed again")
    worker.stop(10)


def samples(counter: Counter) -> list[Sample]:
    return [sample for metric in counter.collect() for sample in metric.samples]
