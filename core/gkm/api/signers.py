"""Signers of an image, in objects of the API and in files."""

from typing import Annotated

from msgspec import Meta, Struct, field

MAX_SIGNERS = 128
"""Signers of one image: verification reads at most 64 signatures of each of two forms."""
MAX_NAME = 1024


class Signer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The signer of a valid signature: a key, or the holder of a certificate (`identity` and `issuer`)."""

    key_id: Annotated[str, Meta(max_length=64)] = field(default="", name="keyID")
    """Base64 of the SHA-256 of the public key in DER form, as cosign writes it."""
    identity: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    """E-mail address or URI in the certificate of a keyless signature."""
    issuer: Annotated[str, Meta(max_length=MAX_NAME)] = ""
    """URL of the OpenID provider that authenticated the identity."""

    def __str__(self) -> str:
        """Return the signer as text for a message."""
        return f"key {self.key_id[:12]}…" if self.key_id else f"{self.identity} of {self.issuer}"
