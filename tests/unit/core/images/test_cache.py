import json

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.images.cache import CacheImage, Format, from_labels
from gkm.images.manifest import Descriptor, ImageManifest
from gkm.images.reference import Reference

DIGEST = "sha256:" + "1" * 64
REF = Reference("registry.example", "cache", None, DIGEST)
IMAGE = ImageManifest(2, Descriptor("c", "sha256:" + "2" * 64, 10), [Descriptor("l", "sha256:" + "3" * 64, 100)], "m")


def described(**labels: str) -> CacheImage:
    return from_labels(
        REF, IMAGE, {f"cache.triton.image/{key.replace('_', '-')}": value for key, value in labels.items()}
    )


def summary(*targets: object) -> str:
    return json.dumps({"targets": targets})


SM90 = {"backend": "cuda", "arch": "90", "warp_size": 32}


def test_labels_of_mcv_are_understood() -> None:
    image = described(
        summary='{"targets":[{"backend":"hip","arch":"gfx90a","warp_size":64}]}',
        cache_size_bytes="80415",
        entry_count="1",
    )
    assert image.formats == (Format.TRITON,)
    assert image.targets == (GpuTarget("hip", "gfx90a", 64),)
    assert (image.size_bytes, image.entry_count, image.download_bytes) == (80415, 1, 100)


def test_vllm_labels_are_understood_with_their_extra_keys_and_prefix() -> None:
    target = {"backend": "cuda", "arch": "sm_75", "warp_size": 32, "ptx_version": 590, "cuda_version": "12.9"}
    image = from_labels(REF, IMAGE, {"cache.vllm.image/summary": summary(target)})
    assert image.formats == (Format.VLLM,)
    assert image.targets == (GpuTarget("cuda", "75", 32, 590, "12.9"),)
    assert image.size_bytes is None


def test_the_order_of_targets_means_nothing() -> None:
    other = {"backend": "hip", "arch": "gfx90a", "warp_size": 64}
    assert described(summary=summary(SM90, other)).targets == described(summary=summary(other, SM90, SM90)).targets


def test_an_image_without_the_labels_is_no_cache() -> None:
    with pytest.raises(GKMError) as caught:
        from_labels(REF, IMAGE, {"maintainer": "x"})
    assert caught.value.reason is Reason.METADATA_MISSING


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        '{"targets":[]}',
        '{"targets":null}',
        '{"targets":[{}]}',
        '{"targets":"cuda"}',
        summary({"backend": "cuda", "arch": "90", "warp_size": "32"}),
        summary({"backend": "cuda", "arch": "90", "warp_size": 0}),
        summary({"backend": "cuda", "arch": "90", "warp_size": 10**30}),
        summary({"backend": "../../etc", "arch": "90", "warp_size": 32}),
        summary({"backend": "cuda", "arch": "90\n", "warp_size": 32}),
        summary({"backend": "cuda", "arch": "x" * 33, "warp_size": 32}),
        summary({"backend": "cuda", "arch": "", "warp_size": 32}),
        summary(*[SM90] * 257),
        "[" * 100_000,
    ],
)
def test_a_summary_that_lies_about_its_shape_is_refused(text: str) -> None:
    with pytest.raises(GKMError) as caught:
        described(summary=text)
    assert caught.value.reason is Reason.METADATA_INVALID
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("text", ["", "-1", "1e9", "0x10", "9" * 19, "1 ", "१"])
def test_a_size_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(GKMError) as caught:
        described(summary=summary(SM90), cache_size_bytes=text)
    assert caught.value.reason is Reason.METADATA_INVALID


def artifact(*types: str) -> ImageManifest:
    """The legacy artifact variant of the format: its layers have their own media types."""
    return ImageManifest(2, IMAGE.config, [Descriptor(kind, "sha256:" + "3" * 64, 100) for kind in types])


TRITON_ARTIFACT = "application/cache.triton.content.layer.v1+triton"
VLLM_ARTIFACT = "application/cache.vllm.content.layer.v1+vllm"


@pytest.mark.parametrize(("kind", "layer"), [(Format.TRITON, TRITON_ARTIFACT), (Format.VLLM, VLLM_ARTIFACT)])
def test_an_artifact_with_labels_is_read_like_any_image(kind: Format, layer: str) -> None:
    image = from_labels(REF, artifact(layer), {kind.summary_label: summary(SM90)})
    assert (image.formats, image.targets) == ((kind,), (GpuTarget("cuda", "90", 32),))


@pytest.mark.parametrize("layer", [TRITON_ARTIFACT, VLLM_ARTIFACT])
def test_an_artifact_without_labels_is_refused_because_its_gpus_are_unknown(layer: str) -> None:
    with pytest.raises(GKMError) as caught:
        from_labels(REF, artifact(layer), {})
    assert caught.value.reason is Reason.METADATA_MISSING
    assert layer in caught.value.message
    assert "build it again" in caught.value.hint


@pytest.mark.parametrize("types", [(TRITON_ARTIFACT, TRITON_ARTIFACT), (VLLM_ARTIFACT,), (TRITON_ARTIFACT, "other")])
def test_an_artifact_that_mcv_would_not_read_is_refused(types: tuple[str, ...]) -> None:
    with pytest.raises(GKMError) as caught:
        from_labels(REF, artifact(*types), {Format.TRITON.summary_label: summary(SM90)})
    assert caught.value.reason is Reason.METADATA_INVALID


def several(runtimes: str, *, triton: object = SM90, vllm: object = SM90, **labels: str) -> CacheImage:
    stated = {"cache.triton.image/summary": summary(triton), "cache.vllm.image/summary": summary(vllm)}
    return from_labels(REF, IMAGE, {**stated, "gkm.io/caches": runtimes, **labels})


def test_the_needs_of_several_caches_hold_together() -> None:
    """A driver that is too old for one of the caches is too old for the image."""
    image = several("vllm-triton", vllm={**SM90, "cuda_version": "13.0"}, triton={**SM90, "cuda_version": "9.2"})
    assert image.targets == (GpuTarget("cuda", "90", 32, 0, "13.0"),)


def test_several_caches_are_for_the_gpus_of_all() -> None:
    labels = {"cache.triton.image/summary": summary(SM90, {**SM90, "arch": "80"})}
    assert several("vllm-triton", **labels).targets == (GpuTarget("cuda", "90", 32),)
    with pytest.raises(GKMError, match="are for different GPUs"):
        several("vllm-triton", vllm={**SM90, "arch": "80"})


@pytest.mark.parametrize("runtimes", ["", "vllm", "vllm-unheard", "triton-vllm", "vllm-inductor", "../vllm"])
def test_a_list_of_runtimes_that_is_not_understood_is_refused(runtimes: str) -> None:
    with pytest.raises(GKMError, match=r"does not list runtimes that this GKM knows"):
        several(runtimes)


def test_the_sizes_of_several_caches_add_up_where_all_are_stated() -> None:
    size = {"cache.triton.image/cache-size-bytes": "10"}
    assert several("vllm-triton", **size).size_bytes is None
    assert several("vllm-triton", **size, **{"cache.vllm.image/cache-size-bytes": "5"}).size_bytes == 15
