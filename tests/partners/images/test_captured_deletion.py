"""Real registries, with the referrers API and without, delete a captured image with all that is attached to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.captured.deletion import delete_image
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.discovery import legacy_tag
from support.agent.capturing import CaptureNode, write_key
from support.peers import require
from support.registry.olareg import Olareg


def is_there(registry: Registry, ref: Reference) -> bool:
    try:
        registry.manifest(ref)
    except GKMError as error:
        assert error.reason is Reason.NOT_FOUND
        return False
    return True


@pytest.fixture(params=["olareg", "distribution"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    require.peer(request.param)
    if request.param == "distribution":
        yield request.getfixturevalue("distribution").host
    else:
        with Olareg.start(tmp_path / "olareg", deletes=True) as running:
            yield running.host


def captured_image(host: str, directory: Path) -> tuple[Registry, Reference, list[Reference]]:
    """Return a captured image in a registry, and all that is attached to it."""
    node = CaptureNode(directory, host)
    write_key(node.key_file)
    node.capture(namespace="deleted")
    ref = Reference.parse(node.announced("csi-1").image)
    registry = Registry(node.config.registries)
    attached = [ref.pinned(each.digest) for each in registry.referrers(ref)]
    assert len(attached) == 2
    everything = [ref, *attached, legacy_tag(ref)]
    assert all(is_there(registry, each) for each in everything)
    return registry, ref, everything


def test_a_captured_image_goes_with_its_signatures_and_its_statement(host: str, tmp_path: Path) -> None:
    registry, ref, everything = captured_image(host, tmp_path)
    for _ in range(2):
        delete_image(registry, ref, set[str]().__contains__)
        assert [each for each in everything if is_there(registry, each)] == []
        assert registry.referrers(ref) == []


def test_a_registry_that_does_not_delete_retains_all_of_it(olareg: Olareg, tmp_path: Path) -> None:
    registry, ref, everything = captured_image(olareg.host, tmp_path)
    with pytest.raises(GKMError) as caught:
        delete_image(registry, ref, set[str]().__contains__)
    assert caught.value.reason is Reason.NOT_ALLOWED
    assert "405" in caught.value.message
    assert all(is_there(registry, each) for each in everything)
