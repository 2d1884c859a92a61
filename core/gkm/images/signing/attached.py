"""Store an image with the artifacts that a layout holds beside it: its signatures, and what else was attached to it.

The artifacts are bytes that others wrote; GKM verifies no signature here. Those of the registry stay.
"""

from gkm.images.local_image import AttachedArtifact, LocalImage, ProgressCallback
from gkm.images.manifest import Descriptor, Manifest
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from gkm.images.signing import store


def push_image(registry: Registry, ref: Reference, image: LocalImage, report: ProgressCallback) -> str:
    """Store an image and the artifacts beside it; return its digest.

    The tag of `ref` comes last, so that it never names the image without its signatures. `registry` must have no
    mirrors.

    Raises:
        GKMError: as push.image, store.add_to_tag and store.store_referrer.
    """
    if not image.attached:
        return push.image(registry, ref, image, report)
    pinned = ref.pinned(push.image(registry, ref.pinned(image.digest), image, report))
    for artifact in image.attached:
        _store(registry, pinned.pinned(artifact.subject), artifact)
    return push.manifest(registry, ref, image.manifest, image.media_type)


def _store(registry: Registry, subject: Reference, artifact: AttachedArtifact) -> None:
    content = artifact.content
    push.blobs(registry, subject, content)
    manifest = Manifest.from_bytes(content.manifest, content.media_type)
    if artifact.suffix:
        store.add_to_tag(registry, subject.tag_of_digest(artifact.suffix), manifest)
        return
    described = manifest.image()
    kind = described.artifact_type or described.config.media_type
    size = len(content.manifest)
    referrer = Descriptor(content.media_type, content.digest, size, described.annotations, kind)
    store.store_referrer(registry, subject, referrer, content.manifest)
