"""What a pod compiled extends the generation of its family that the node chose, over a registry with faults."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.api.capture_settings import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import families
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm_agent.capturing import inspection
from gkm_agent.capturing import steps as capturing_steps
from gkm_agent.capturing.family_base import WORK as UNION
from gkm_agent.capturing.family_base import family_of
from gkm_agent.capturing.progress import CaptureOrigin, CaptureState
from gkm_agent.capturing.steps import CaptureSteps
from support.agent.capturing import H100_KERNEL, CaptureNode, write_key
from support.agent.generations import FAMILY, FamilyNode
from support.images.directories import RANK, component
from support.registry.server import Registry

OTHER, THIRD = "A" * 52, "B" * 52
"""Directories of further kernels."""


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> FamilyNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return FamilyNode(made)


def first_generation(node: FamilyNode) -> str:
    node.node.capture("csi-1", family="llama")
    return node.choose(node.report("csi-1"))


def test_a_capture_states_its_family_and_is_named_after_it(node: FamilyNode) -> None:
    node.node.capture(family="llama")
    report = node.report("csi-1")
    assert (report.state, report.family, report.base) == ("Announced", "llama", None)
    assert report.content_digest is not None
    assert report.name == f"llama-sm90-{report.content_digest[7:19]}"


def test_new_kernels_become_one_layer_on_those_of_the_generation(node: FamilyNode, registry: Registry) -> None:
    base = first_generation(node)
    first = node.report("csi-1")
    with_second_kernel(node, "csi-2")
    sent = len(registry.requests)
    second = node.report("csi-2")
    assert (second.state, second.base) == ("Announced", base), second.message
    assert node.layers(second)[:-1] == node.layers(first)
    uploads = [each.path for each in registry.requests[sent:] if each.method == "PUT"]
    assert not any(digest.removeprefix("sha256:") in path for path in uploads for digest in node.layers(first))
    found = fetched(node, second.image)
    assert {path.split("/")[0] for path in found} == {H100_KERNEL, OTHER}
    assert len(found) == second.files


def fetched(node: FamilyNode, image: str) -> dict[str, bytes]:
    """Return the files of an image, as a node that never had its base extracts them."""
    layout = CaptureNode(node.node.root / "elsewhere", node.node.registry).layout
    layout.make_state_directories()
    ref = Reference.parse(image)
    stored = pull.fetch(node.client, cache.describe(node.client, ref), layout, max_bytes=1 << 30)
    top = layout.entry(stored.digest) / "cache"
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def with_second_kernel(node: FamilyNode, volume: str, name: str = OTHER) -> Path:
    content = node.node.capture(volume, family="llama", copies=(name,))
    shutil.rmtree(content / H100_KERNEL)
    return content


def test_two_nodes_make_the_same_image_of_the_same_files(node: FamilyNode, registry: Registry, tmp_path: Path) -> None:
    first_generation(node)
    other = FamilyNode(CaptureNode(tmp_path / "other", registry.host))
    other.node.root.mkdir()
    shutil.copy(node.node.key_file, other.node.key_file)
    other.choose(node.report("csi-1"))
    images = []
    for each in (node, other):
        with_second_kernel(each, "csi-2")
        images.append(each.report("csi-2").image)
    assert images[0] == images[1] != ""


def test_files_that_the_generation_has_are_a_duplicate(node: FamilyNode) -> None:
    base = first_generation(node)
    node.node.capture("csi-2", family="llama")
    report = node.report("csi-2")
    assert (report.state, report.reason) == ("Duplicate", "NotRequired")
    assert base in report.message


def test_a_pod_changes_no_file_of_the_generation(node: FamilyNode) -> None:
    first_generation(node)
    genuine = fetched(node, node.report("csi-1").image)
    content = with_second_kernel(node, "csi-2")
    shutil.copytree(content / OTHER, content / H100_KERNEL)
    for path in (content / H100_KERNEL).glob("*.cubin"):
        path.write_bytes(path.read_bytes() + b"poison")
    report = node.report("csi-2")
    assert report.state == "Announced", report.message
    shutil.rmtree(node.node.root / "elsewhere")
    found = fetched(node, report.image)
    assert {path: found[path] for path in genuine} == genuine


@pytest.mark.parametrize("hostile", ["link", "file in place of a directory", "link in place of a directory"])
def test_hostile_names_do_not_reach_into_the_generation(node: FamilyNode, hostile: str) -> None:
    first_generation(node)
    content = with_second_kernel(node, "csi-2")
    match hostile:
        case "link":
            (content / OTHER / "add_kernel.json").unlink()
            (content / OTHER / "add_kernel.json").symlink_to("/etc/passwd")
        case "file in place of a directory":
            (content / H100_KERNEL).write_text("x")
        case _:
            (content / H100_KERNEL).symlink_to("/etc")
    report = node.report("csi-2")
    if hostile == "link":
        assert (report.state, report.reason) == ("Refused", "UnsafeContent")
    else:
        assert report.state == "Announced", report.message
        shutil.rmtree(node.node.root / "elsewhere", ignore_errors=True)
        assert (f"{H100_KERNEL}/add_kernel.cubin") in fetched(node, report.image)


def test_a_limit_that_the_generation_fills_says_so(node: FamilyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    first_generation(node)
    with_second_kernel(node, "csi-2")
    kept = len(list((node.node.layout.captured / "csi-1" / "content").glob("*/*")))
    monkeypatch.setattr(inspection, "MAX_FILES", kept)
    report = node.report("csi-2")
    assert (report.state, report.reason) == ("Refused", "TooLarge")
    assert f"more than {kept} files, with the {kept} files of the generation that it extends" in report.message
    assert "a new family" in report.message


def test_a_generation_in_another_repository_is_sent_whole(node: FamilyNode) -> None:
    """As one that a person built: its layers are not where captures go."""
    node.node.capture("csi-1", namespace="other")
    report = node.node.announced("csi-1")
    base = node.choose(report)
    with_second_kernel(node, "csi-2")
    found = node.report("csi-2")
    assert (found.state, found.base, len(node.layers(found))) == ("Announced", base, 1)
    assert {path.split("/")[0] for path in fetched(node, found.image)} == {H100_KERNEL, OTHER}


def test_a_capture_waits_while_the_store_lacks_the_generation(node: FamilyNode) -> None:
    first_generation(node)
    base = node.node.layout.entry(Reference.parse(node.report("csi-1").image).target)
    base.rename(base.with_name("lost"))
    with_second_kernel(node, "csi-2")
    waiting = node.report("csi-2")
    assert (waiting.state, waiting.reason) == ("Waiting", Reason.NODE_ERROR.value)
    base.with_name("lost").rename(base)
    assert node.report("csi-2").state == "Announced"


@pytest.mark.parametrize("damage", ["changed", "gone", "added", "list"])
def test_a_capture_waits_while_the_generation_is_damaged(node: FamilyNode, damage: str) -> None:
    """The registry has the genuine layers: a statement of damaged files would be a false one."""
    first_generation(node)
    entry = node.node.layout.entry(Reference.parse(node.report("csi-1").image).target)
    kernel = entry / "cache" / H100_KERNEL / "add_kernel.cubin"
    whole = kernel.read_bytes()
    match damage:
        case "changed":
            kernel.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "gone":
            kernel.unlink()
        case "added":
            (kernel.parent / "another.cubin").write_bytes(whole)
        case _:
            (entry / "files.json").write_text("{")
    with_second_kernel(node, "csi-2")
    waiting = node.report("csi-2")
    assert (waiting.state, waiting.reason) == ("Waiting", Reason.NODE_ERROR.value)
    assert entry.name.rpartition("-")[2] in waiting.message


def inspected(node: FamilyNode) -> tuple[CaptureSteps, Path, Path]:
    """Return the steps of a process that inspected a capture, the capture, and the entry that it extends."""
    base = first_generation(node)
    directory = with_second_kernel(node, "csi-2").parent
    steps = node.node.worker()._steps
    assert steps.advance(directory, []).state is CaptureState.INSPECTED
    return steps, directory, node.node.layout.entry(base)


def test_a_capture_and_its_generation_are_compared_and_linked_once(node: FamilyNode) -> None:
    steps, directory, entry = inspected(node)
    (united,) = directory.glob(f"{UNION}*")
    kernel = Path(H100_KERNEL, "add_kernel.cubin")
    assert (united / kernel).samefile(entry / "cache" / kernel)
    (entry / "cache" / kernel).unlink()
    assert steps.advance(directory, []).state is CaptureState.PACKED
    assert list(directory.glob(".*")) == []


def test_another_process_compares_the_generation_again(node: FamilyNode) -> None:
    _steps, directory, entry = inspected(node)
    (entry / "cache" / H100_KERNEL / "add_kernel.cubin").unlink()
    with pytest.raises(GKMError, match="damaged") as caught:
        node.node.worker()._steps.advance(directory, [])
    assert caught.value.reason is Reason.NODE_ERROR
    assert list(directory.glob(f"{UNION}*")) == []


def test_a_capture_is_inspected_again_when_its_generation_left_the_store_for_good(node: FamilyNode) -> None:
    """No cache names the generation any more, so the agent does not pull it again."""
    steps, directory, entry = inspected(node)
    entry.rename(entry.with_name("lost"))
    with pytest.raises(GKMError, match="pulls it again"):
        steps.advance(directory, [])
    families.save(node.node.layout, FamilyChoice(FAMILY, CacheRef(FAMILY.namespace, "gone")))
    assert steps.advance(directory, []).state is CaptureState.CAPTURED
    report = node.report("csi-2")
    assert (report.state, report.base) == ("Announced", None), report.message


def test_the_links_do_not_wait_for_a_disk_with_free_space(node: FamilyNode) -> None:
    steps, directory, _entry = inspected(node)
    with pytest.raises(GKMError, match="too little free space") as caught:
        replace(steps, spare_bytes=lambda _path, _percent: 0).advance(directory, [])
    assert caught.value.reason is Reason.DISK_FULL
    assert list(directory.glob(f"{UNION}*")) == []


def test_layers_do_not_grow_without_a_bound(node: FamilyNode) -> None:
    first_generation(node)
    counts = []
    for number in range(9):
        name = chr(ord("C") + number) * 52
        with_second_kernel(node, f"csi-{number + 2}", name)
        report = node.report(f"csi-{number + 2}")
        assert report.state == "Announced", report.message
        node.choose(report)
        counts.append(len(node.layers(report)))
    assert counts == [2, 3, 4, 5, 6, 7, 8, 1, 2]


def test_a_capture_begins_again_on_a_generation_that_does_not_come_from_it(node: FamilyNode) -> None:
    first_generation(node)
    with_second_kernel(node, "csi-2")
    with_second_kernel(node, "csi-3", THIRD)
    mine, theirs = (node.report(f"csi-{number}") for number in (2, 3))
    base = node.choose(theirs)
    again = node.report("csi-2")
    assert (again.state, again.base) == ("Announced", base)
    assert again.image not in (mine.image, theirs.image)
    assert {path.split("/")[0] for path in fetched(node, again.image)} == {H100_KERNEL, OTHER, THIRD}
    # The generation that has all of them is the end.
    node.choose(again)
    assert node.report("csi-3").state == "Duplicate"
    assert node.report("csi-2").image == again.image


def test_a_capture_begins_again_a_few_times_at_most(node: FamilyNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing_steps, "MAX_ATTEMPTS", 3)
    first_generation(node)
    with_second_kernel(node, "csi-2")
    node.report("csi-2")
    record = node.node.progress("csi-2")
    assert record.attempts < 3
    steps = node.node.worker()._steps
    others = []
    for number in range(5):
        with_second_kernel(node, f"csi-x{number}", chr(ord("D") + number) * 52)
        (node.node.layout.captured / "csi-2").rename(node.node.root / "aside")
        report = node.report(f"csi-x{number}")
        (node.node.root / "aside").rename(node.node.layout.captured / "csi-2")
        node.choose(report)
        others.append(steps.begin_again(node.node.layout.captured / "csi-2"))
        node.report("csi-2")
    assert others.count(True) == 3


@pytest.mark.parametrize(
    ("namespaces", "cache_namespace", "family"),
    [
        ([], "ml-apps", FAMILY),
        ([], None, None),
        (["ml-*"], None, CacheRef(None, "llama")),
        (["ml-*"], "ml-apps", None),
    ],
)
def test_captures_join_a_family_of_the_kind_that_they_become(
    namespaces: list[str], cache_namespace: str | None, family: CacheRef | None
) -> None:
    origin = CaptureOrigin("csi-1", "ml-apps", "p", "", "2026-01-01T00:00:00Z", cache_namespace, "llama")
    assert family_of(origin, CapturedCaches(cluster_namespaces=namespaces)) == family


def test_a_capture_of_an_earlier_version_joins_nothing(node: FamilyNode) -> None:
    first_generation(node)
    node.node.capture("csi-2", copies=(OTHER,))
    report = node.report("csi-2")
    assert (report.state, report.family, report.base) == ("Announced", "", None)
    assert report.name.startswith("captured-triton-sm90-")
    assert node.node.progress("csi-2").state is CaptureState.ANNOUNCED


def test_a_generation_of_another_runtime_keeps_its_files_where_they_are(node: FamilyNode) -> None:
    """Pods of both runtimes find theirs in the next generation; its repository is another one, so it is sent whole."""
    base = first_generation(node)
    genuine = fetched(node, node.report("csi-1").image)
    component(node.node.capture("csi-2", kernels=(), family="llama"))
    report = node.report("csi-2")
    assert (report.state, report.runtime, report.base) == ("Announced", "vllm", base), report.message
    assert len(node.layers(report)) == 1
    shutil.rmtree(node.node.root / "elsewhere")
    found = fetched(node, report.image)
    assert {path: found.get(path) for path in genuine} == genuine
    assert all(path.startswith(f"{RANK}/") for path in found.keys() - genuine.keys())
    assert f"{RANK}/backbone/cache_key_factors.json" in found
