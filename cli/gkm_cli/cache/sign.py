"""`gkm cache sign`: sign an image so that cosign 2, cosign 3 and gkm verify it."""

import sys

from gkm.hoststate.escaping import escape
from gkm.images import local_reference
from gkm.images.signing import sign as signing

from gkm_cli.output import Output, OutputOption, line, show
from gkm_cli.registries import RefArgument, RegistryAccess, signature_repository
from gkm_cli.signing import SigningOptions


def sign(
    reference: RefArgument,
    *,
    options: SigningOptions,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign the digest that REF resolves to now, by a key or as an identity."""
    options.check()
    # Before a token goes to Fulcio and before a password is asked for: the configuration may be wrong.
    ref = local_reference.parse(reference)
    registry = access.store(ref)
    signer = options.signer()
    pinned = ref.pinned(registry.resolve(ref))
    signed = signing.sign(registry, pinned, signer, signature_repository())
    for form, obstacle in signed.missing.items():
        sys.stderr.write(f"warning: {escape(f'no {form} signature is stored: {obstacle}')}\n")
    stored = {form.value: location for form, location in signed.stored.items()}
    missing = {form.value: str(obstacle) for form, obstacle in signed.missing.items()}
    result = {"digest": signed.digest, "signature": {"form": signed.form, "stored": stored, "missing": missing}}
    show(result, output, lambda: line(f"{pinned} signed ({signed.form})"))
