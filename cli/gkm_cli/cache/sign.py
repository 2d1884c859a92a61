"""`gkm cache sign`: sign an image, or all images of a repository, so that cosign 2, cosign 3 and gkm verify them."""

import sys
from typing import Annotated

import typer
from gkm.hoststate.escaping import escape
from gkm.images import local_reference
from gkm.images.signing import sign as signing

from gkm_cli.cache import tag_signing
from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RefArgument, RegistryAccess, signature_repository
from gkm_cli.signing import SigningOptions

AllTagsOption = Annotated[
    bool,
    typer.Option(
        "--all-tags", help="Sign the images of all tags of REF, a repository; skip those that this key has signed."
    ),
]
LimitOption = Annotated[
    int,
    typer.Option("--limit", min=1, max=100_000, help="Refuse --all-tags for a repository with more tags of images."),
]


def sign(
    reference: RefArgument,
    *,
    options: SigningOptions,
    all_tags: AllTagsOption = False,
    limit: LimitOption = 1000,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign the digest that REF resolves to now, by a key or as an identity; with --all-tags, all images of REF."""
    options.check()
    if all_tags:
        if not options.key:
            raise UsageError("--all-tags needs --key", "a certificate for an identity ends after minutes")
        tag_signing.sign(reference, limit, options, access, output)
        return
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
