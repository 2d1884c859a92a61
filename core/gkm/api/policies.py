"""The section `verification` of the configuration: which signatures an image needs. Contradictions are refused.

Its regular expressions are matched in linear time, for a stranger chose the text. Python's own engine backtracks: one
careless pattern and one crafted subject occupy a thread for hours. RE2 runs every pattern in time proportional to the
subject, and its language is the language of Sigstore's tools (Go's `regexp`): no look-around, no back-references.
docs/decisions/0010 has the measurements.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gkm.api import predicate_rules
from gkm.api.predicate_rules import MAX_EXPRESSION

MAX_POLICIES = 256
SHORTEST_RECHECK_SECONDS = 60.0
MAX_SIGNERS = 32
"""Maximum of keys, and of identities, in one policy."""
MAX_ATTESTATIONS_REQUIRED = 8
"""In one policy."""
MAX_RULES = 16
"""For one required attestation."""
SIGNATURE_PREDICATES = "https://sigstore.dev/cosign/sign/"
"""The types of cosign's signatures, which have the form of attestations."""
_Text = Annotated[str, Meta(max_length=1024)]
_REPOSITORY = r"^(|[A-Za-z0-9.:\[\]-]+(/[a-z0-9][a-z0-9._-]*)+)$"
"""Pattern of a repository: host:port/repository, without a tag."""
MAX_PATTERN = 512
"""Characters in a pattern."""
MAX_SUBJECT = 1024
"""Characters in a subject; a longer subject never matches."""


CA_ISSUER = "x509:"
"""In the issuer of a signer before the path of a file; no URL of a provider begins with it."""


class Identity(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    r"""The identity of a signer without a key of its own, as the certificate of the signature states it.

    Either `issuer` or `caFile`. `issuer`, of a keyless signer, is the URL of the OpenID provider, compared character by
    character: a pattern would admit anyone who runs a provider. `caFile` is the path of a PEM file with certificate
    authorities, one of which issued the certificate, directly or through others. No log has such a signature, so the
    certificate must be valid whenever GKM verifies.

    Exactly one of `subject` (an e-mail address or the URI of a workflow, compared
    character by character) and `subjectRegExp`. The pattern must match the whole subject (there is no need for ^ and
    $), in RE2's language, at most 512 characters: `https://github\.com/my-org/.*` does not match
    `https://evil.example/?https://github.com/my-org/x`.
    """

    issuer: _Text = ""
    subject: _Text = ""
    subject_reg_exp: str = ""
    ca_file: _Text = ""

    def __post_init__(self) -> None:
        """Refuse an identity without a subject or an issuer, or with two of either."""
        if bool(self.issuer) == bool(self.ca_file):
            raise ValueError("an identity has either `issuer` or `caFile`, not both")
        if self.issuer.startswith(CA_ISSUER):
            raise ValueError(f"`issuer` is a URL; for the path of a file without {CA_ISSUER!r} there is `caFile`")
        if bool(self.subject) == bool(self.subject_reg_exp):
            raise ValueError("an identity has either `subject` or `subjectRegExp`, not both")
        if self.subject_reg_exp:
            full_match(self.subject_reg_exp)

    def matches(self, issuer: str, subject: str) -> bool:
        """Return whether a certificate with this issuer and subject matches this identity."""
        if issuer != self.authority or not subject:
            return False
        return full_match(self.subject_reg_exp)(subject) if self.subject_reg_exp else subject == self.subject

    @property
    def authority(self) -> str:
        """Return the issuer that a matching signer has (gkm.api.signers.Signer)."""
        return self.issuer or ca_issuer(self.ca_file)

    def __str__(self) -> str:
        """Return the identity as text for a message."""
        return f"{self.subject or f'/{self.subject_reg_exp}/'} of {self.authority}"


def ca_issuer(path: str) -> str:
    """Return the issuer that stands for certificates from the authorities in a file."""
    return f"{CA_ISSUER}{path}"


class PredicateRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A rule about the predicate of an attestation: an expression of CEL about the variable `predicate`.

    The attestation counts if the expression is true. An error, such as a field that the predicate lacks, is not true.
    A verdict names the rule by `message`; without one, by the expression.
    """

    expression: Annotated[str, Meta(min_length=1, max_length=MAX_EXPRESSION)]
    message: Annotated[str, Meta(max_length=256)] = ""

    def __post_init__(self) -> None:
        """Refuse an expression that does not compile."""
        predicate_rules.compile_rule(self.expression)


class RequiredAttestation(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An attestation that an image needs: an in-toto statement of `predicateType` that satisfies every rule.

    One attestation must satisfy all rules. It is valid if one of the policy's keys or identities signed it, with the
    same checks as for signatures, and if its subject is the digest of the image.
    """

    predicate_type: Annotated[str, Meta(min_length=1, max_length=256)]
    rules: Annotated[list[PredicateRule], Meta(max_length=MAX_RULES)] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse a predicate type that only signatures have."""
        if self.predicate_type.startswith(SIGNATURE_PREDICATES):
            raise ValueError("`predicateType` is a signature's type, which every policy requires already")


class Policy(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The signatures that the images of a policy need.

    `images` lists globs over host:port/repository, with the rules of `registries.allow` (api/config.py). `namespaces`
    lists globs; an empty list covers every namespace and the cluster-wide kind. If several policies cover an image,
    EVERY ONE of them must be satisfied, in any order: a broad policy never shadows a stricter one, and a further policy
    can only restrict. (Sigstore's policy-controller combines its policies the same way.)

    `keys` lists public keys: PEM text, or the path of a PEM file. `identities` lists holders of certificates.
    `require` applies to both together: `any` one of them, `all` of them, or a number of them. One signer satisfies one
    entry: a signer that matches two identities satisfies one of them, and a key that is listed twice is one entry.

    `trustedRoot` is the path of a Sigstore trusted_root.json (certificate authorities, logs, timestamp authorities).
    Keyless identities need it; GKM never fetches a trusted root.

    `tlog` sets the role of the transparency log for signatures by key. `required`: only a signature with a valid entry
    in a log of the trusted root is valid. `optional` (the default): a signature without an entry is valid; with a
    trusted root, a signature with an invalid entry is not. `ignored`: GKM does not check entries. A keyless signature
    always needs its entry, because the log proves that the signer used the certificate during its minutes of validity.

    `attestations` lists the attestations that the image needs besides its signatures. One of the signers must make
    each, with any `require`.

    `tlogLookup` lets GKM query the logs of the trusted root (at their `baseUrl`) for the missing entry of a keyless
    signature in the legacy form. GKM sends no other requests to the logs.

    `signatureRepository` is the repository with the signatures and attestations of the images, as cosign's variable
    COSIGN_REPOSITORY names it. Without it, they are in the repository of the image.
    """

    keys: Annotated[list[str], Meta(max_length=MAX_SIGNERS)] = field(default_factory=list)
    images: Annotated[list[_Text], Meta(min_length=1, max_length=256)] = field(default_factory=lambda: ["*"])
    namespaces: Annotated[list[_Text], Meta(max_length=1024)] = field(default_factory=list)
    require: Literal["any", "all"] | Annotated[int, Meta(ge=1)] = "any"
    identities: Annotated[list[Identity], Meta(max_length=MAX_SIGNERS)] = field(default_factory=list)
    tlog: Literal["required", "optional", "ignored"] = "optional"
    trusted_root: _Text = ""
    tlog_lookup: bool = False
    signature_repository: Annotated[str, Meta(max_length=511, pattern=_REPOSITORY)] = ""
    attestations: Annotated[list[RequiredAttestation], Meta(max_length=MAX_ATTESTATIONS_REQUIRED)] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        """Refuse a policy that no signature can satisfy, or that names no signer."""
        signers = len(self.keys) + len(self.identities)
        if not signers:
            raise ValueError("a policy names at least one of `keys` and `identities`")
        if isinstance(self.require, int) and not 1 <= self.require <= signers:
            raise ValueError(f"`require: {self.require}` of {signers} keys and identities is not possible")
        keyless = any(identity.issuer for identity in self.identities)
        if keyless and not self.trusted_root:
            raise ValueError("`identities` with `issuer` need `trustedRoot`, the path of a trusted_root.json")
        if self.tlog == "required" and len(self.certificate_authorities) > 0:
            raise ValueError("`tlog: required` is not possible with `caFile`: no log has such a signature")
        if self.tlog == "required" and not self.trusted_root:
            raise ValueError("`tlog: required` needs `trustedRoot`, the path of a trusted_root.json")
        if self.tlog_lookup and not keyless:
            raise ValueError("`tlogLookup` is for `identities`: a signature by key is not looked up")
        if self.tlog == "ignored" and not self.keys:
            raise ValueError("`tlog: ignored` is for keys: a keyless signature is not valid without the log")

    @property
    def certificate_authorities(self) -> tuple[str, ...]:
        """Return the paths of the certificate authorities that the identities name, each once."""
        return tuple(dict.fromkeys(identity.ca_file for identity in self.identities if identity.ca_file))


class Verification(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The section `verification` of the configuration: which signatures images need.

    `enforce` refuses an image that a policy refuses or that no policy covers. `warn` allows it with a warning. `off`
    disables verification. The default refuses every unsigned image.

    The controller verifies an image again every `recheckInterval` seconds; 0 disables that. `whenRevoked` applies to a
    cache that is Ready on a node when GKM refuses its image: `withdraw` serves it to no further pod, `keep` continues
    to serve it (docs/reference/verdicts.md).
    """

    mode: Literal["enforce", "warn", "off"] = "enforce"
    policies: Annotated[list[Policy], Meta(max_length=MAX_POLICIES)] = field(default_factory=list)
    recheck_interval: Annotated[float, Meta(ge=0)] = 21_600.0
    when_revoked: Literal["withdraw", "keep"] = "withdraw"

    def __post_init__(self) -> None:
        """Refuse a recheck interval so short that it would overload registries."""
        if 0 < self.recheck_interval < SHORTEST_RECHECK_SECONDS:
            raise ValueError(f"`recheckInterval` is 0 (never) or at least {SHORTEST_RECHECK_SECONDS:g} seconds")

    def files(self) -> Iterator[str]:
        """Yield the paths of the files that verification reads: keys, certificate authorities and trusted roots."""
        for policy in self.policies:
            yield from (key for key in policy.keys if not is_pem(key))
            yield from policy.certificate_authorities
            if policy.trusted_root:
                yield policy.trusted_root


def is_pem(key: str) -> bool:
    """Return whether a configured public key is PEM text, not a path."""
    return key.lstrip().startswith("-----BEGIN")


MAX_PROGRAM_BYTES = 1 << 20
"""Memory of one compiled pattern; RE2 refuses a pattern that needs more.

It bounds the time too: the slowest pattern found that compiles needs 0.7 s for a subject of MAX_SUBJECT characters,
with RE2's default of 8 MiB it needs 24 s.
"""


def full_match(pattern: str) -> Callable[[str], bool]:
    """Return a function that reports whether a whole text matches `pattern`; `a.c` does not match `xabc`.

    Raises:
        ValueError: the pattern is invalid, longer than MAX_PATTERN, or compiles to more than MAX_PROGRAM_BYTES.
    """
    compiled = _compiled(pattern)

    def matches(text: str) -> bool:
        if len(text) > MAX_SUBJECT:
            return False
        try:
            return compiled.fullmatch(text.encode()) is not None
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot express
            return False

    return matches


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 -- re2 publishes no types
    # Imported here, so that a process without patterns does not load the engine (2.6 MiB).
    import re2  # noqa: PLC0415

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern has {len(pattern)} characters, the limit is {MAX_PATTERN}")
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
    except UnicodeEncodeError:
        reason = "it holds a lone surrogate"
    raise ValueError(f"{pattern[:80]!r} is no regular expression of RE2's language: {reason[:120]}")
