"""Real cosign verifies what the agent makes of a capture, in real registries: the image, and the list of its files."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from gkm.images import cache
from gkm.images.captured.content import PREDICATE_TYPE
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from support.agent.capturing import CaptureNode
from support.images.directories import component, kernel
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed


@pytest.fixture(params=["olareg", "distribution"])
def node(request: pytest.FixtureRequest, cosign: Cosign, tmp_path: Path) -> CaptureNode:
    """A node whose captures go to a real registry, with the referrers API or without."""
    made = CaptureNode(tmp_path, str(request.getfixturevalue(request.param).host), password=b"")
    shutil.copy(cosign.private_key, made.key_file)
    return made


def stated_files(cosign: Cosign, image: str) -> set[str]:
    """Have cosign verify the statement about an image; return the paths in it."""
    options = ("--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root), *PLAIN)
    words = ("verify-attestation", "--key", str(cosign.public_key), "--type", PREDICATE_TYPE, *options)
    envelope = json.loads(cosign.run(*words, image).splitlines()[-1])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["subject"][0]["digest"] == {"sha256": image.rpartition(":")[2]}
    return {file["path"] for file in statement["predicate"]["files"]}


def files(content: Path) -> set[str]:
    return {str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()}


def test_cosign_verifies_the_captured_image_of_several_caches_that_a_node_mounts(
    node: CaptureNode, cosign: Cosign
) -> None:
    content = node.capture(kernels=())
    component(content)
    kernel(content, "triton")
    report = node.announced("csi-1")
    assert report.runtime == "vllm-triton"
    assert cosign.verify(report.image)
    client = Client(node.config.registries)
    described = cache.describe(client, Reference.parse(report.image))
    mounted = pull.fetch(client, described, node.layout, max_bytes=1 << 30).path / "cache"
    assert stated_files(cosign, report.image) == files(mounted)
    assert {path.partition("/")[0] for path in files(mounted)} == {"vllm", "triton"}


def test_cosign_verifies_a_captured_image_and_the_list_of_its_files(
    node: CaptureNode, cosign: Cosign, tmp_path: Path
) -> None:
    content = node.capture()
    worker = node.worker()
    assert worker.make_images()
    (report,) = worker.reports()["ml-apps"]

    assert cosign.verify(report.image)
    assert stated_files(cosign, report.image) == files(content)
    stranger = Cosign.create(tmp_path / "stranger")
    with pytest.raises(CosignFailed, match="accepted signatures do not match threshold"):
        stranger.verify(report.image)
