"""MCV's label of further trees, which is hostile text."""

import json

import pytest
from gkm.api.errors import GKMError
from gkm.images.cache_mounts import LABEL, MAX_LABEL, CacheMount, cache_mounts

FLASHINFER = {
    "subPath": "flashinfer",
    "absPath": "/root/.cache/flashinfer",
    "env": "FLASHINFER_WORKSPACE_BASE",
    "requiresWritable": True,
}


def test_the_trees_of_the_label_are_read() -> None:
    trees = [FLASHINFER, {"subPath": "triton", "absPath": "/root/.triton", "later": 1}]
    first, second = cache_mounts({LABEL: json.dumps(trees)})
    assert first == CacheMount(
        "flashinfer", "/root/.cache/flashinfer", "FLASHINFER_WORKSPACE_BASE", requires_writable=True
    )
    assert (second.abs_path, second.requires_writable) == ("/root/.triton", False)


def test_an_image_without_the_label_has_none() -> None:
    assert cache_mounts({}) == ()


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        (json.dumps([{"subPath": "a"}]), "missing required field `absPath`"),
        (json.dumps([{"subPath": "a", "absPath": "b"}] * 65), "of length <= 64"),
        ("[" + " " * MAX_LABEL + "]", "at most 4096 are read"),
        ("\ud800", "cannot be read"),
    ],
)
def test_another_text_is_an_error(label: str, why: str) -> None:
    with pytest.raises(GKMError, match=why):
        cache_mounts({LABEL: label})
