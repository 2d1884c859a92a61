"""The images of captures in their registry: prove what nodes claim about one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gkm.api.errors import GKMError, Reason
from gkm.images.captured import statement
from gkm.images.captured.statement import CaptureClaim
from gkm.images.reference import Reference
from gkm.images.signatures.verify import VERIFY_SECONDS

from gkm_operator.captures.announcements import Announcement
from gkm_operator.images import CheckedImages


class CapturedImages(Protocol):
    """Answers about images. Bounded in time."""

    def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
        """Check that the signatures of an image, and a signed statement about its files, prove an announcement.

        Return the time of the capture as signers state it: the announced one is not proven.

        Raises:
            GKMError: they do not prove it; or, if transient, the registry does not answer.
        """


@dataclass(frozen=True)
class RegistryCaptures:
    """`CapturedImages` of a configuration."""

    images: CheckedImages

    def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
        """See CapturedImages."""
        ref, scope = Reference.parse(announced.image), None if cluster else announced.namespace
        images = self.images.with_pull_secrets(announced.image, scope, ())
        verdict = images.verify(announced.image, ref.target, scope)
        if verdict.verified is not True:
            # Also where the mode of verification allows the image: what a node claims needs a proof.
            reason = Reason.SIGNATURE_MISSING if verdict.reason is Reason.NOT_REQUIRED else verdict.reason
            raise GKMError(reason, verdict.message)
        images.claims(announced.image, ref.target)
        wanted = CaptureClaim(announced.namespace, announced.hardware.key, announced.content_digest)
        registry, trusts = images.registry.within(VERIFY_SECONDS), images.verifier.trusts(ref, scope)
        return statement.check(registry, ref, trusts, wanted, now)
