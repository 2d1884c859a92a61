"""The options that name who signs, of the commands that sign."""

import os
import sys
from dataclasses import dataclass
from functools import partial
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer
from gkm.hoststate.escaping import escape
from gkm.images.signatures.rekor import Rekor
from gkm.images.signatures.sigstore_services import PUBLIC_FULCIO, PUBLIC_REKOR, SigstoreService
from gkm.images.signing import ambient, keyless, keys
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PASSWORD_VARIABLE, PrivateKey

from gkm_cli.key_sources import private_key
from gkm_cli.output import UsageError
from gkm_cli.signers import TrustedRootOption


@dataclass(frozen=True, kw_only=True)
class SigningOptions:
    """The options of the commands that sign: a private key, or an identity that Fulcio certifies; Sigstore services."""

    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="FILE",
            help="A private key: a file, env://VARIABLE or k8s://NAMESPACE/SECRET; its password is in "
            f"{PASSWORD_VARIABLE} or in the Secret, or asked for.",
        ),
    ] = ""
    identity_token: Annotated[
        Path | None, typer.Option("--identity-token", metavar="FILE", help="Sign as the identity in this OpenID token.")
    ] = None
    fulcio_url: Annotated[
        str,
        typer.Option(
            "--fulcio-url",
            metavar="URL",
            help=f"The certificate authority for --identity-token; default: {PUBLIC_FULCIO}.",
        ),
    ] = ""
    rekor_url: Annotated[
        str,
        typer.Option(
            "--rekor-url", metavar="URL", help="The transparency log to write to; with --key, no log by default."
        ),
    ] = ""
    trusted_root: TrustedRootOption = None

    def check(self) -> None:
        """Raise UsageError for options that contradict one another."""
        if self.key and self.identity_token:
            raise UsageError("--key and --identity-token exclude each other", "give one of them")
        if self.key and (self.fulcio_url or (self.trusted_root and not self.rekor_url)):
            raise UsageError("--fulcio-url and --trusted-root have no effect on this signature", "leave them out")
        if self.key and self.rekor_url and not self.trusted_root:
            raise UsageError("--rekor-url needs --trusted-root", "name the file with the log's key")

    def signer(self) -> ImageSigner:
        """Return the signer that the options name, after `check`.

        A password may be asked for, and an identity token goes to Fulcio: all other steps that can fail come first.

        Raises:
            UsageError: no signer is named, and the surroundings have no identity.
            CommandFailed: the Secret of the key cannot be read.
            GKMError: the key or the token cannot be read, or a Sigstore service refused.
        """
        return self._by_key() if self.key else self._by_identity()

    def _by_key(self) -> ImageSigner:
        private = _read(self.key)
        if not self.rekor_url:
            return ImageSigner.by_key(private)
        return ImageSigner.by_key(private, Rekor(SigstoreService("Rekor", self.rekor_url)), str(self.trusted_root))

    def _by_identity(self) -> ImageSigner:
        from gkm_cli.trusted_roots import trusted_root as fetched  # noqa: PLC0415 -- signing by key needs no TUF

        token = _token(self.identity_token)
        fulcio = SigstoreService("Fulcio", self.fulcio_url or PUBLIC_FULCIO)
        log = Rekor(SigstoreService("Rekor", self.rekor_url or PUBLIC_REKOR))
        return keyless.signer(fulcio, str(self.trusted_root or fetched()), token, log)


def _read(key: str) -> PrivateKey:
    """Return a private key, with the password from its Secret, cosign's variable, or the terminal if it needs one."""
    found = private_key(key)
    if found is not None and found.password is not None:
        return keys.unlocked(found.pem, f"private key {key}", found.password)
    given = os.environ.get(PASSWORD_VARIABLE)
    password = (given or "").encode("utf-8", "surrogateescape")
    ask = None if given is not None or not sys.stdin.isatty() else partial(_asked, key)
    if found is not None:
        return keys.unlocked(found.pem, f"private key {key}", password, ask)
    return keys.read(key, password, ask)


def _asked(key: str) -> bytes:
    return getpass(escape(f"password of {key}: ")).encode()


def _token(file: Path | None) -> str:
    """Return the identity token in a file, or from the environment."""
    if file:
        return ambient.read(file)
    if found := ambient.token():
        return found
    raise UsageError(
        "there is no --key, no --identity-token, and no identity of GitHub Actions, GitLab CI or a pod",
        f"name a key with --key, or a token with --identity-token or in {ambient.TOKEN_VARIABLE}",
    )
