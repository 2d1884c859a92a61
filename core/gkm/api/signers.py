"""Who signed an image, as objects and files name them."""

from typing import Annotated

from msgspec import Meta, Struct, field

MAX_SIGNERS = 128
"""Of one image: so many signatures are read at most, 64 of each form."""
MAX_NAME = 1024


class Signer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who made a signature that counted: a key, or the holder of a certificate (`identity` and `issuer`)."""

    key_id: Annotated[
        str, Meta(max_length=64, description="Base64 of the sha256 of the public key in DER form, as cosign writes it.")
    ] = field(default="", name="keyID")
    identity: Annotated[
        str, Meta(max_length=MAX_NAME, description="E-mail address or URI in the certificate of a keyless signature.")
    ] = ""
    issuer: Annotated[
        str, Meta(max_length=MAX_NAME, description="URL of the OpenID provider that vouched for the identity.")
    ] = ""

    def __str__(self) -> str:
        """Return it for a sentence."""
        return f"key {self.key_id[:12]}…" if self.key_id else f"{self.identity} of {self.issuer}"
