"""`gkm cache` and the image of a generation: the layers of the one before, and a layer with what is new."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from support.agent.capturing import CaptureNode, write_key
from support.agent.generations import FamilyNode
from support.cli.command import content, gkm
from support.registry.server import Registry

NEW = "A" * 52


@pytest.fixture
def generation(registry_server: Registry, tmp_path: Path) -> tuple[str, Path, Path]:
    """The image of a second generation, the public key of its signer, and a directory with all of its files."""
    node = FamilyNode(CaptureNode(tmp_path / "node", registry_server.host))
    node.node.root.mkdir()
    signer = write_key(node.node.key_file)
    public = tmp_path / "cosign.pub"
    public.write_bytes(signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    node.node.capture("csi-1", family="llama")
    node.choose(node.report("csi-1"))
    files = node.node.capture("csi-2", family="llama", copies=(NEW,))
    report = node.report("csi-2")
    assert len(node.layers(report)) == 2, report.message
    return report.image, public, files


def test_a_generation_is_shown_checked_and_verified_as_any_image(generation: tuple[str, Path, Path]) -> None:
    image, public, files = generation
    shown = gkm("cache", "inspect", image, "--plain-http", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["size"] == sum(map(len, content(files).values()))
    verified = gkm("cache", "verify", image, "--key", public, "--plain-http")
    assert verified.returncode == 0, verified.stderr
    gpus = files.parent / "gpus.json"
    gpus.write_text(json.dumps([{"ids": [0], "backend": "cuda", "arch": "90", "warpSize": 32}]))
    checked = gkm("cache", "check", image, "--gpus", gpus, "--plain-http", "-o", "json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["compatibleGPUs"] == [{"ids": [0]}]


def test_a_generation_is_extracted_with_the_files_of_all_layers(generation: tuple[str, Path, Path]) -> None:
    image, public, files = generation
    out = files.parents[3] / "out"
    done = gkm("cache", "extract", image, "--to", out, "--key", public, "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert content(out) == content(files)
