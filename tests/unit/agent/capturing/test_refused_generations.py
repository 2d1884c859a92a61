"""A registry that refuses the next generation of a family: a capture says why, and ends as one image, signed once."""

import shutil
from pathlib import Path

import pytest
from gkm.api.errors import Reason
from gkm.api.nodes import CapturedImage
from gkm.images.captured.content import PREDICATE_TYPE
from gkm.images.reference import Reference
from gkm.images.signatures.signature_formats import SIGN_PREDICATE
from support.agent.capturing import H100_KERNEL, CaptureNode, write_key
from support.agent.generations import FamilyNode
from support.registry.faults import ANY_METHOD, Answer, Fault, status
from support.registry.server import Registry
from support.registry.store import Repository

OTHER = "A" * 52
"""The directory of the kernel that a pod adds."""
AWAY = Fault("", methods=ANY_METHOD, cut_after=0, reset=True)


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> FamilyNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return FamilyNode(made)


def repository_of(registry: Registry) -> Repository:
    return registry.store.repositories["captured/ml-apps/triton"]


def first_generation(node: FamilyNode) -> str:
    node.node.capture("csi-1", family="llama")
    return node.choose(node.report("csi-1"))


def adds_a_kernel(node: FamilyNode, volume: str = "csi-2") -> None:
    content = node.node.capture(volume, family="llama", copies=(OTHER,))
    shutil.rmtree(content / H100_KERNEL)


def is_complete(registry: Registry, report: CapturedImage) -> None:
    """Check that an image is in the registry with one signature in each form, and one statement."""
    repository, digest = repository_of(registry), Reference.parse(report.image).target
    layers = repository.manifests[digest].parsed()["layers"]
    assert all(layer["digest"] in repository.blobs for layer in layers)
    legacy = repository.find(f"{digest.replace(':', '-')}.sig")
    assert legacy is not None
    assert len(legacy.parsed()["layers"]) == 1
    kinds = [each["annotations"]["dev.sigstore.bundle.predicateType"] for each in repository.referrers(digest)]
    assert sorted(kinds) == sorted([PREDICATE_TYPE, SIGN_PREDICATE])


def images(registry: Registry) -> set[str]:
    """Return the digests of the images that have a tag."""
    tags = repository_of(registry).tags
    return {digest for tag, digest in tags.items() if not tag.startswith("sha256-")}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(AWAY, Reason.REGISTRY_UNAVAILABLE, id="away"),
        pytest.param(status("/uploads/", 507), Reason.REGISTRY_UNAVAILABLE, id="full"),
        pytest.param(status("/uploads/", 413), Reason.REGISTRY_UNAVAILABLE, id="a quota that is too small"),
        pytest.param(status("/manifests/cuda", 507), Reason.REGISTRY_UNAVAILABLE, id="full after the blobs"),
        pytest.param(status("/uploads/", 403), Reason.UNAUTHORIZED, id="no right to push"),
        pytest.param(status("/manifests/sha256-", 413), Reason.REGISTRY_UNAVAILABLE, id="no room for the signature"),
        pytest.param(status("/referrers/", 503), Reason.REGISTRY_UNAVAILABLE, id="away before the statement"),
    ],
)
def test_the_next_generation_waits_with_the_reason_and_is_there_once(
    node: FamilyNode, registry: Registry, fault: Fault, reason: Reason
) -> None:
    base = first_generation(node)
    adds_a_kernel(node)
    registry.misbehave(fault)
    waiting = node.report("csi-2")
    assert (waiting.state, waiting.reason) == ("Waiting", reason)
    assert "registry" in waiting.message
    assert waiting.image == ""

    registry.behave()
    done = node.report("csi-2")
    assert (done.state, done.base) == ("Announced", base), done.message
    assert images(registry) == {base, Reference.parse(done.image).target}
    is_complete(registry, done)
    before = len(registry.requests)
    assert node.report("csi-2") == done
    assert len(registry.requests) == before


def refusing_to_change(registry: Registry) -> Fault:
    """Return a fault by which no tag of an image that is there can be written, also with the same image."""
    tags = [tag for tag in repository_of(registry).tags if not tag.startswith("sha256-")]
    return Fault(f"/manifests/(?:{'|'.join(tags)})$", lambda _: Answer(409, {}, b"{}"), frozenset({"PUT"}))


def test_a_push_that_was_killed_before_its_record_is_no_second_one(node: FamilyNode, registry: Registry) -> None:
    first_generation(node)
    adds_a_kernel(node)
    directory = node.node.layout.captured / "csi-2"
    done = node.report("csi-2")
    (directory / "progress.json").unlink()
    registry.misbehave(refusing_to_change(registry))
    assert node.report("csi-2").image == done.image
    is_complete(registry, done)


def test_another_image_of_the_same_content_takes_no_tag_away(
    node: FamilyNode, registry: Registry, tmp_path: Path
) -> None:
    """Two nodes have the same files, and one of them extends a generation: the images differ in their layers."""
    first_generation(node)
    adds_a_kernel(node)
    done = node.report("csi-2")
    other = FamilyNode(CaptureNode(tmp_path / "other", registry.host))
    other.node.root.mkdir()
    shutil.copy(node.node.key_file, other.node.key_file)
    other.node.capture("csi-1", family="llama", copies=(OTHER,))
    registry.misbehave(refusing_to_change(registry))
    theirs = other.report("csi-1")
    assert (theirs.state, theirs.name, theirs.base) == ("Announced", done.name, None), theirs.message
    assert theirs.image != done.image
    assert {Reference.parse(each.image).target for each in (done, theirs)} <= images(registry)
    for each in (done, theirs):
        is_complete(registry, each)
