"""`gkm cache sign`: sign an image so that cosign 2, cosign 3 and gkm verify it."""

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer
from gkm.hoststate.escaping import escape
from gkm.images.reference import Reference
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.sigstore_services import PUBLIC_FULCIO, PUBLIC_REKOR, SigstoreService
from gkm.images.signing import ambient, keyless, keys
from gkm.images.signing import sign as signing
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PASSWORD_VARIABLE, PrivateKey

from gkm_cli.output import Output, OutputOption, UsageError, line, show
from gkm_cli.registries import RefArgument, RegistryAccess
from gkm_cli.signers import TrustedRootOption

KeyFileOption = Annotated[
    str,
    typer.Option(
        "--key", metavar="FILE", help=f"A private key; gkm reads its password from {PASSWORD_VARIABLE}, or asks for it."
    ),
]
TokenOption = Annotated[
    Path | None, typer.Option("--identity-token", metavar="FILE", help="Sign as the identity in this OpenID token.")
]
FulcioOption = Annotated[
    str,
    typer.Option(
        "--fulcio-url", metavar="URL", help=f"The certificate authority for --identity-token; default: {PUBLIC_FULCIO}."
    ),
]
RekorOption = Annotated[
    str,
    typer.Option("--rekor-url", metavar="URL", help="The transparency log to write to; with --key, none by default."),
]


def sign(
    reference: RefArgument,
    *,
    key: KeyFileOption = "",
    identity_token: TokenOption = None,
    fulcio_url: FulcioOption = "",
    rekor_url: RekorOption = "",
    trusted_root: TrustedRootOption = None,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign the digest that REF resolves to now, by a key or as an identity."""
    check_signer(key, identity_token, fulcio_url, rekor_url, trusted_root)
    # Before a token goes to Fulcio and before a password is asked for: the configuration may be wrong.
    ref = Reference.parse(reference)
    registry = access.registry(ref, mirrored=False)
    signer = signer_from(key, identity_token, fulcio_url, rekor_url, trusted_root)
    pinned = ref.pinned(registry.resolve(ref))
    signed = signing.sign(registry, pinned, signer)
    stored = {form.value: location for form, location in signed.stored.items()}
    result = {"digest": signed.digest, "signature": {"form": signed.form, "stored": stored}}
    show(result, output, lambda: line(f"{pinned} signed ({signed.form})"))


def check_signer(
    key: str, identity_token: Path | None, fulcio_url: str, rekor_url: str, trusted_root: Path | None
) -> None:
    """Refuse options about a signer that contradict one another; raises UsageError."""
    if key and identity_token:
        raise UsageError("--key and --identity-token exclude each other", "give one of them")
    if key and (fulcio_url or (trusted_root and not rekor_url)):
        raise UsageError("--fulcio-url and --trusted-root have no effect on this signature", "leave them out")


def signer_from(
    key: str, identity_token: Path | None, fulcio_url: str, rekor_url: str, trusted_root: Path | None
) -> ImageSigner:
    """Return the signer that the options name; raises UsageError and GKMError."""
    if key:
        return by_key(key, rekor_url, trusted_root)
    return by_identity(identity_token, fulcio_url, rekor_url, trusted_root)


def by_key(key: str, rekor_url: str = "", trusted_root: Path | None = None) -> ImageSigner:
    """Return the signer with the private key in a file; raises UsageError and GKMError."""
    if rekor_url and not trusted_root:
        raise UsageError("--rekor-url needs --trusted-root", "name the file with the log's key")
    private = _read(key)
    if not rekor_url:
        return ImageSigner.by_key(private)
    return ImageSigner.by_key(private, Rekor(SigstoreService("Rekor", rekor_url)), str(trusted_root))


def _read(key: str) -> PrivateKey:
    """Return a private key, with the password from cosign's variable, or from the terminal if the key needs one."""
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None or not sys.stdin.isatty():
        return keys.read(key, (given or "").encode("utf-8", "surrogateescape"))
    return keys.read(key, b"", lambda: getpass(escape(f"password of {key}: ")).encode())


def _token(file: Path | None) -> str:
    """Return the identity token in a file, or that of the surroundings."""
    if file:
        return ambient.read(file)
    if found := ambient.token():
        return found
    raise UsageError(
        "there is no --key, no --identity-token, and no identity of GitHub Actions, GitLab CI or a pod",
        f"name a key with --key, or a token with --identity-token or in {ambient.TOKEN_VARIABLE}",
    )


def by_identity(
    identity_token: Path | None = None, fulcio_url: str = "", rekor_url: str = "", trusted_root: Path | None = None
) -> ImageSigner:
    """Return the signer of the identity in a token, or in the surroundings; raises UsageError and GKMError."""
    from gkm_cli.trusted_roots import trusted_root as fetched  # noqa: PLC0415 -- signing by key needs no TUF

    token = _token(identity_token)
    fulcio = SigstoreService("Fulcio", fulcio_url or PUBLIC_FULCIO)
    log = Rekor(SigstoreService("Rekor", rekor_url or PUBLIC_REKOR))
    return keyless.signer(fulcio, str(trusted_root or fetched()), token, log)
