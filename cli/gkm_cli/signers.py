"""The options that name the required signers."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from gkm.api import config
from gkm.api.config import Config, Identity, Policy, Verification
from gkm.api.errors import GKMError
from gkm.api.policies import MAX_ATTESTATIONS_REQUIRED, MAX_RULES, PredicateRule, RequiredAttestation
from gkm.images.image_store import ImageSource
from gkm.images.local_reference import ARCHIVE
from gkm.images.reference import Reference
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.verify import Verdict, Verifier
from msgspec import structs

from gkm_cli.key_sources import public_key
from gkm_cli.output import UsageError
from gkm_cli.predicate_types import predicate_type
from gkm_cli.registries import signature_repository

TrustedRootOption = Annotated[
    Path | None,
    typer.Option(
        "--trusted-root", metavar="FILE", help="The trusted_root.json of your Sigstore; default: fetched by TUF."
    ),
]


@dataclass(frozen=True, kw_only=True)
class SignerOptions:
    """The options about required signers of the commands that verify images."""

    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="PEM",
            help="A public key that must have signed: a file, env://VARIABLE or k8s://NAMESPACE/SECRET; repeatable.",
        ),
    ] = None
    identity: Annotated[
        str,
        typer.Option(
            "--identity",
            metavar="REGEXP",
            help="The identity that must have signed without a key: a pattern for the whole e-mail or URI.",
        ),
    ] = ""
    issuer: Annotated[
        str, typer.Option("--issuer", metavar="URL", help="The OpenID provider of the identity, exactly.")
    ] = ""
    trusted_root: TrustedRootOption = None
    attestations: Annotated[
        list[str] | None,
        typer.Option(
            "--attestation",
            metavar="TYPE",
            help="An attestation that the image needs too: a URI, or cosign's name such as spdxjson; repeatable.",
        ),
    ] = None
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="CEL", help="A rule that each of these attestations must satisfy; repeatable."),
    ] = None
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="A file with the `verification` of a configuration.")
    ] = None
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            help="Apply the policies for caches of this namespace; without it, for cluster-wide caches.",
        ),
    ] = None


def verification(signers: SignerOptions, configured: Config) -> Verification:
    """Return the required signatures: of the signers in the options, of a policy file, or of the configuration.

    Raises:
        UsageError: they name no signer, or two of them do.
        CommandFailed: the Secret of a key cannot be read.
        GKMError: SIGNATURE_INVALID: a key or trusted root cannot be read.
        ConfigInvalid: the policy file cannot be read or used.
    """
    if signers.keys or signers.identity or signers.issuer:
        if signers.policy:
            raise UsageError("--policy excludes --key and --identity", "use one of them")
        policy = _policy(signers)
        # An unreadable key is a usage error, not a verdict on the image.
        TrustPolicy.from_policy(0, policy)
        return Verification(policies=[policy])
    if signers.attestations or signers.rules:
        raise UsageError(
            "--attestation and --rule are for --key and --identity", "a policy names its own `attestations`"
        )
    if signers.trusted_root:
        raise UsageError("--trusted-root is for --key and --identity", "a policy names its own `trustedRoot`")
    if signers.policy:
        where = f"verification {signers.policy}"
        return config.parse_verification(config.read_file(signers.policy, where), where)
    if not configured.verification.policies and configured.verification.mode == "enforce":
        raise UsageError(
            "no signer is named",
            "name a public key with --key, an identity with --identity and --issuer, or policies with --policy",
        )
    return configured.verification


_NO_SIGNATURES = (
    "is a docker-archive, which has no place for a signature; verify the image in its registry, or a copy of it in a "
    "layout: gkm cache copy REF oci:PATH"
)


def verify_image(registry: ImageSource, pinned: Reference, wanted: Verification, namespace: str | None) -> Verdict:
    """Return the verdict on an image under the required signatures.

    Raises:
        GKMError: the registry did not answer the question.
        UsageError: a policy that covers the image names an unusable key or trusted root.
    """
    verifier = Verifier(wanted)
    if wanted.mode != "off":
        try:
            verifier.trusts(pinned, namespace)
        except GKMError as error:  # an unusable policy is no verdict on the image
            raise UsageError(error.message, error.hint or "correct the policy that names it") from error
    verdict = verifier.verify(registry, pinned, namespace)
    if verdict.verified is None and not verdict.allowed:
        raise GKMError(verdict.reason, verdict.message, detail=verdict.detail)
    if verdict.verified is False and pinned.registry == ARCHIVE:
        return replace(verdict, message=f"{pinned.name} {_NO_SIGNATURES}")
    return verdict


def _policy(signers: SignerOptions) -> Policy:
    if bool(signers.identity) != bool(signers.issuer):
        raise UsageError("--identity and --issuer belong together", "give both")
    if signers.rules and not signers.attestations:
        raise UsageError("--rule is for --attestation", "name the type of the attestation")
    trusted_root = signers.trusted_root
    if signers.identity and not trusted_root:
        from gkm_cli.trusted_roots import trusted_root as fetched  # noqa: PLC0415 -- keys need no TUF

        trusted_root = fetched()
    try:
        named = [Identity(issuer=signers.issuer, subject_reg_exp=signers.identity)] if signers.identity else []
        policy = Policy(
            keys=[*map(public_key, signers.keys or [])], identities=named, trusted_root=str(trusted_root or "")
        )
    except ValueError as error:
        raise UsageError(f"--identity cannot be used: {error}", "write a pattern in RE2's language") from error
    return structs.replace(policy, attestations=_required(signers), signature_repository=signature_repository())


def _required(signers: SignerOptions) -> list[RequiredAttestation]:
    given = [predicate_type(each, "--attestation") for each in signers.attestations or []]
    try:
        rules = [PredicateRule(rule) for rule in signers.rules or []]
    except ValueError as error:
        raise UsageError(f"--rule cannot be used: {error}", "write an expression of CEL about `predicate`") from error
    try:
        required = [RequiredAttestation(name, rules) for name in dict.fromkeys(given)]
    except ValueError as error:
        raise UsageError(f"--attestation cannot be used: {error}", "name the type of an attestation") from error
    if len(required) > MAX_ATTESTATIONS_REQUIRED or len(rules) > MAX_RULES:
        most = f"at most {MAX_ATTESTATIONS_REQUIRED} attestations and {MAX_RULES} rules"
        raise UsageError(f"{most} can be required", "give fewer")
    return required
