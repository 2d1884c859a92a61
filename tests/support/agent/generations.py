"""A node whose captures join a family: its store has the generations, as the agent pulls and chooses them."""

from dataclasses import dataclass

from gkm.api.nodes import CapturedImage
from gkm.hoststate import families, pointers
from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images import cache
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from support.agent.capturing import CaptureNode

FAMILY = CacheRef("ml-apps", "llama")


@dataclass(frozen=True)
class FamilyNode:
    """Captures of pods that named a family."""

    node: CaptureNode
    family: CacheRef = FAMILY

    @property
    def client(self) -> Registry:
        return Registry(self.node.config.registries)

    def choose(self, report: CapturedImage, *, pulled: bool = True) -> str:
        """Make the image of a capture the generation that this node gives to its pods; return its digest."""
        return self.choose_image(report.name, Reference.parse(report.image), pulled=pulled)

    def choose_image(self, name: str, image: Reference, *, pulled: bool = True) -> str:
        """Make an image, by digest, the member that this node gives to its pods; return its digest."""
        layout = self.node.layout
        layout.make_state_directories()
        if pulled:
            described = cache.describe(self.client, image)
            pull.fetch(self.client, described, layout, max_bytes=1 << 30)
        member = CacheRef(self.family.namespace, name)
        pointers.save(layout, Pointer(member, str(image), CacheState.READY, image.target))
        families.save(layout, FamilyChoice(self.family, member))
        return image.target

    def layers(self, report: CapturedImage) -> list[str]:
        """Return the digests of the layers of an image."""
        manifest = self.client.manifest(Reference.parse(report.image)).image()
        return [layer.digest for layer in manifest.layers]

    def report(self, volume: str) -> CapturedImage:
        """Return the report of a capture, in whatever state."""
        worker = self.node.worker()
        worker.make_images()
        worker.make_images()  # the second time it looks at what ended
        (found,) = (each for each in worker.reports()[self.family.namespace or ""] if each.volume == volume)
        return found
