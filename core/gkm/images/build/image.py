"""Making an image of a cache directory: find what is in it, pack it, and describe it."""

from collections.abc import Sequence
from pathlib import Path

from gkm.images.build.contents import look
from gkm.images.build.layer import pack
from gkm.images.build.versions import Versions
from gkm.images.cache import Target, this_platform
from gkm.images.made import OCI_LAYER, configuration, image_of
from gkm.images.packed import PackedImage, Report

TITLE = "org.opencontainers.image.title"
_LAYER_FILE = "layer.tar.gz"


def build(
    directory: Path,
    title: str,
    work: Path,
    *,
    stated: Sequence[Target] = (),
    versions: Versions | None = None,
    report: Report = lambda _done, _of: None,
) -> PackedImage:
    """Return the image of a Triton or vLLM cache; the same files give the same digest.

    Manifests of one layer and of OCI's types throughout: every MCV reads those, old ones too
    (prior-art/gkm-02-mcv-image-format.md, "Layer"), an OCI layout asks for them, and every registry takes them.

    Args:
        directory: what TRITON_CACHE_DIR or VLLM_CACHE_ROOT pointed to. Nothing may write to it meanwhile.
        title: what the image is called: the base name of its repository.
        work: an empty directory of the caller; the layer is written there, and must stay until the image is stored.
        stated: GPUs that a person names, for a vLLM cache that does not say what it was compiled for.
        versions: what a person states of the programs that made the cache.
        report: told for every piece how many bytes of how many are packed; what it raises ends the build.

    Raises:
        GKMError: METADATA_MISSING when it is no cache or nothing tells the GPU, METADATA_INVALID when its parts
            contradict each other about the GPU, UNSAFE_CONTENT when it holds links or devices, CONTENT_MISMATCH
            when something writes to it, TOO_LARGE when no node would accept it.
        OSError: it cannot be read, or the disk refused.
    """
    versions = versions or Versions()
    contents = look(directory, stated, versions)
    layer, unpacked = pack(directory, contents, work / _LAYER_FILE, OCI_LAYER, report)
    labels = {**contents.labels, **versions.labels, TITLE: title}
    return image_of(configuration(this_platform(), labels, [unpacked]), [layer], labels)
