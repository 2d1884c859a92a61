"""Real cosign verifies what the agent makes of a capture, in real registries: the image, and the list of its files."""

import base64
import json
import shutil
from pathlib import Path

import pytest
from gkm.images.captured.content import PREDICATE_TYPE
from support.agent.capturing import CaptureNode
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed


@pytest.fixture(params=["olareg", "distribution"])
def node(request: pytest.FixtureRequest, cosign: Cosign, tmp_path: Path) -> CaptureNode:
    """A node whose captures go to a real registry, with the referrers API or without."""
    made = CaptureNode(tmp_path, str(request.getfixturevalue(request.param).host), password=b"")
    shutil.copy(cosign.private_key, made.key_file)
    return made


def test_cosign_verifies_a_captured_image_and_the_list_of_its_files(
    node: CaptureNode, cosign: Cosign, tmp_path: Path
) -> None:
    content = node.capture()
    worker = node.worker()
    assert worker.make_images()
    (report,) = worker.reports()["ml-apps"]

    assert cosign.verify(report.image)
    options = ("--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root), *PLAIN)
    words = ("verify-attestation", "--key", str(cosign.public_key), "--type", PREDICATE_TYPE, *options)
    envelope = json.loads(cosign.run(*words, report.image).splitlines()[-1])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert {file["path"] for file in statement["predicate"]["files"]} == {
        str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()
    }
    assert statement["subject"][0]["digest"] == {"sha256": report.image.rpartition(":")[2]}
    stranger = Cosign.create(tmp_path / "stranger")
    with pytest.raises(CosignFailed, match="accepted signatures do not match threshold"):
        stranger.verify(report.image)
