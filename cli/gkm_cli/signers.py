"""The options that say whose signature is wanted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from gkm.api import config
from gkm.api.config import Config, Identity, Policy, Verification
from gkm.api.errors import GKMError, Reason

KeyOption = Annotated[
    list[str] | None, typer.Option("--key", metavar="PEM", help="A public key that must have signed; repeatable.")
]
IdentityOption = Annotated[
    str,
    typer.Option("--identity", metavar="REGEXP", help="Who must have signed without a key: the whole e-mail or URI."),
]
IssuerOption = Annotated[
    str, typer.Option("--issuer", metavar="URL", help="Who vouches for the identity: its OpenID provider, exactly.")
]
TrustedRootOption = Annotated[
    Path | None, typer.Option("--trusted-root", metavar="FILE", help="The trusted_root.json of your Sigstore.")
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="A file with the `verification` of a configuration.")
]


@dataclass(frozen=True)
class Signers:
    """What the options say of signers."""

    keys: list[str] | None
    identity: str
    issuer: str
    trusted_root: Path | None
    policy: Path | None


def verification(signers: Signers, configured: Config) -> Verification:
    """Return what must be signed: by whom the options name, by a policy file, or else as it is configured.

    Raises:
        GKMError: nothing says what must be signed, or two things do.
        ConfigInvalid: what is named cannot be a policy.
        OSError: the policy file cannot be read.
    """
    if signers.keys or signers.identity or signers.issuer:
        if signers.policy:
            raise GKMError(Reason.NOT_ALLOWED, "--policy and --key or --identity were given", "use one of them")
        return Verification(policies=[_policy(signers)])
    if signers.policy:
        return config.parse_verification(signers.policy.read_bytes())
    if not configured.verification.policies and configured.verification.mode == "enforce":
        raise GKMError(
            Reason.SIGNATURE_MISSING,
            "nothing says whose signature is wanted",
            "name a public key with --key, somebody with --identity and --issuer, or policies with --policy",
        )
    return configured.verification


def _policy(signers: Signers) -> Policy:
    if bool(signers.identity) != bool(signers.issuer):
        raise GKMError(Reason.NOT_ALLOWED, "--identity and --issuer belong together", "name both")
    if signers.identity and not signers.trusted_root:
        raise GKMError(
            Reason.NOT_ALLOWED,
            "--identity needs --trusted-root",
            "for the public Sigstore, `cosign trusted-root create --with-default-services` writes the file",
        )
    try:
        named = [Identity(issuer=signers.issuer, subject_reg_exp=signers.identity)] if signers.identity else []
        return Policy(keys=signers.keys or [], identities=named, trusted_root=str(signers.trusted_root or ""))
    except ValueError as error:
        raise GKMError(Reason.NOT_ALLOWED, f"--identity: {error}") from error
