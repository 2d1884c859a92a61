"""The options that say whose signature is wanted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from gkm.api import config
from gkm.api.config import Config, Identity, Policy, Verification
from gkm.api.errors import GKMError
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.trust_material import TrustMaterial
from gkm.images.signatures.verify import Verdict, Verifier

from gkm_cli.output import UsageError

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
NamespaceOption = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Judge it as a cache of this namespace; without, as a cluster-wide one."),
]


@dataclass(frozen=True)
class SignerOptions:
    """What the options say of signers."""

    keys: list[str] | None
    identity: str
    issuer: str
    trusted_root: Path | None
    policy: Path | None


def verification(signers: SignerOptions, configured: Config) -> Verification:
    """Return what must be signed: by whom the options name, by a policy file, or else as it is configured.

    Raises:
        WrongUsage: nothing says what must be signed, or two things do.
        GKMError: SIGNATURE_INVALID, a key or trusted root cannot be read.
        ConfigInvalid: the policy file cannot be read or used.
    """
    if signers.keys or signers.identity or signers.issuer:
        if signers.policy:
            raise UsageError("--policy and --key or --identity were given", "use one of them")
        policy = _policy(signers)
        TrustPolicy.from_policy(0, policy, TrustMaterial())  # a key that cannot be read is no answer about the image
        return Verification(policies=[policy])
    if signers.trusted_root:
        raise UsageError("--trusted-root is for --key and --identity", "a policy names its own `trustedRoot`")
    if signers.policy:
        where = f"verification {signers.policy}"
        return config.parse_verification(config.read_file(signers.policy, where), where)
    if not configured.verification.policies and configured.verification.mode == "enforce":
        raise UsageError(
            "nothing says whose signature is wanted",
            "name a public key with --key, somebody with --identity and --issuer, or policies with --policy",
        )
    return configured.verification


def verify_image(registry: Registry, pinned: Reference, wanted: Verification, namespace: str | None) -> Verdict:
    """Return the verdict on an image.

    Raises:
        GKMError: the registry could not say.
        WrongUsage: a policy that covers the image names a key or trusted root that cannot be used.
    """
    verifier = Verifier(wanted)
    if wanted.mode != "off":
        try:
            verifier.trusts(pinned, namespace)
        except GKMError as error:  # no answer about the image
            raise UsageError(error.message, error.hint or "mend the policy that names it") from error
    verdict = verifier.verify(registry, pinned, namespace)
    if verdict.verified is None and not verdict.allowed:
        raise GKMError(verdict.reason, verdict.message, detail=verdict.detail)
    return verdict


def _policy(signers: SignerOptions) -> Policy:
    if bool(signers.identity) != bool(signers.issuer):
        raise UsageError("--identity and --issuer belong together", "name both")
    if signers.identity and not signers.trusted_root:
        raise UsageError(
            "--identity needs --trusted-root",
            "for the public Sigstore, `cosign trusted-root create --with-default-services` writes the file",
        )
    try:
        named = [Identity(issuer=signers.issuer, subject_reg_exp=signers.identity)] if signers.identity else []
        return Policy(keys=signers.keys or [], identities=named, trusted_root=str(signers.trusted_root or ""))
    except ValueError as error:
        raise UsageError(f"--identity cannot be used: {error}", "write a pattern in RE2's language") from error
