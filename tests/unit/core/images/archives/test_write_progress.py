"""Writing an image reports its progress within a layer, up to the total."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from gkm.images.archives import docker_archive, oci_layout
from gkm.images.local_image import PIECE_BYTES, LocalImage, ProgressCallback
from gkm.images.reference import Reference
from support.images.archives import file, packed, tree

Write = Callable[[LocalImage, Path, Reference, ProgressCallback], None]
REF = Reference.parse("registry.example/team/x:1")


@pytest.fixture
def image() -> LocalImage:
    return packed(tree(file("a", secrets.token_bytes(8 * PIECE_BYTES))), tree(file("b", b"b")))


@pytest.mark.parametrize("write", [oci_layout.write, docker_archive.write])
def test_reports_grow_within_a_layer_and_end_at_the_total(write: Write, image: LocalImage, tmp_path: Path) -> None:
    config, large, small = image.blobs
    from_file = tmp_path / "layer"
    from_file.write_bytes(b"".join(large.pieces()))
    stored = replace(image, blobs=(config, replace(large, source=from_file), small))
    reports: list[tuple[int, int]] = []
    write(stored, tmp_path / "out", REF, lambda done, of: reports.append((done, of)))
    assert len(reports) >= 8
    assert all(before[0] <= after[0] and before[1] == after[1] for before, after in pairwise(reports))
    assert reports[-1][0] == reports[-1][1] >= 8 * PIECE_BYTES
