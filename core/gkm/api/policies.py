"""Whose signature opens which images: the policies of `verification`, read strictly; a contradiction is refused."""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api import patterns

MAX_POLICIES = 256
SHORTEST_RECHECK_SECONDS = 60.0
MAX_SIGNERS = 32
"""Keys, and identities, in one policy."""

_Text = Annotated[str, Meta(max_length=1024)]


class Identity(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    r"""Who signed without a key: what the certificate of a keyless signature says of its holder.

    `issuer` is the URL of the OpenID provider, compared character by character: a pattern there would let anybody
    with a provider of his own in. Exactly one of `subject` (an e-mail address or the URI of a workflow, compared
    character by character) and `subjectRegExp`. The pattern must match the whole subject (there is no need for ^ and
    $), in RE2's language, at most 512 characters: `https://github\.com/my-org/.*` does not match
    `https://evil.example/?https://github.com/my-org/x`.
    """

    issuer: Annotated[str, Meta(min_length=1, max_length=1024)]
    subject: _Text = ""
    subject_reg_exp: str = ""

    def __post_init__(self) -> None:
        """Refuse what names nobody, or two."""
        if bool(self.subject) == bool(self.subject_reg_exp):
            raise ValueError("an identity has exactly one of `subject` and `subjectRegExp`")
        if self.subject_reg_exp:
            patterns.full_match(self.subject_reg_exp)

    def matches(self, issuer: str, subject: str) -> bool:
        """Return whether this names the holder of a certificate."""
        if issuer != self.issuer or not subject:
            return False
        return patterns.full_match(self.subject_reg_exp)(subject) if self.subject_reg_exp else subject == self.subject

    def __str__(self) -> str:
        """Return it for a sentence."""
        return f"{self.subject or f'/{self.subject_reg_exp}/'} of {self.issuer}"


class Policy(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Whose signatures open which images.

    `images` are globs over host:port/repository, read as those of `registries.allow` are (api/config.py);
    `namespaces` are globs, and none of them means every namespace and the cluster kind. When several policies cover
    an image, EVERY ONE of them must be satisfied, in whatever order they stand: a broad policy never shadows a
    stricter one, and to add a policy can only close, never open. (Sigstore's policy-controller combines its policies
    the same way.)

    `keys` are public keys: PEM text, or the path of a PEM file. `identities` are holders of keyless signatures.
    `require` counts over both together: `any` one of them, `all` of them, or a number of them. One signer stands for
    one entry: who matches two identities still signs once, and a key that is listed twice counts once.

    `trustedRoot` is the path of a Sigstore trusted_root.json (certificate authorities, logs, timestamp authorities);
    it is needed for identities, and nothing is ever fetched in its place.

    `tlog` says what holds for the transparency log with signatures by key: `required` counts only those with a good
    entry in a log of the trusted root; `optional` (the default) refuses a signature whose entry is bad, where there
    is a trusted root to tell by, and accepts one without entry; `ignored` never looks. A keyless signature always
    needs its entry, because the log is the witness of when its certificate, good for minutes, was used.

    `tlogLookup` lets us ask the logs of the trusted root (at their `baseUrl`) for the entry of a keyless signature that
    came without it, as signatures in the legacy form may. Nothing else is ever asked of them.
    """

    keys: Annotated[list[str], Meta(max_length=MAX_SIGNERS)] = field(default_factory=list)
    images: Annotated[list[_Text], Meta(min_length=1, max_length=256)] = field(default_factory=lambda: ["*"])
    namespaces: Annotated[list[_Text], Meta(max_length=1024)] = field(default_factory=list)
    require: Literal["any", "all"] | Annotated[int, Meta(ge=1)] = "any"
    identities: Annotated[list[Identity], Meta(max_length=MAX_SIGNERS)] = field(default_factory=list)
    tlog: Literal["required", "optional", "ignored"] = "optional"
    trusted_root: _Text = ""
    tlog_lookup: bool = False

    def __post_init__(self) -> None:
        """Refuse what could never be satisfied, or would be by nobody."""
        signers = len(self.keys) + len(self.identities)
        if not signers:
            raise ValueError("a policy names at least one of `keys` and `identities`")
        if isinstance(self.require, int) and not 1 <= self.require <= signers:
            raise ValueError(f"`require: {self.require}` of {signers} keys and identities is not possible")
        if self.identities and not self.trusted_root:
            raise ValueError("`identities` need `trustedRoot`, the path of a trusted_root.json")
        if self.tlog == "required" and not self.trusted_root:
            raise ValueError("`tlog: required` needs `trustedRoot`, the path of a trusted_root.json")
        if self.tlog_lookup and not self.identities:
            raise ValueError("`tlogLookup` is for `identities`: a signature by key is not looked up")
        if self.tlog == "ignored" and not self.keys:
            raise ValueError("`tlog: ignored` is for keys: a keyless signature is nothing without the log")


class Verification(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What must be signed.

    `enforce` refuses what no policy accepts, also what no policy covers. `warn` lets it pass with a warning, `off`
    does not look. The default refuses everything unsigned: allowing it takes a line of configuration.

    Every `recheckInterval` seconds the controller verifies an image again; 0 is never. `whenRevoked` says what becomes
    of a cache that is Ready on a node when its image is refused: `withdraw` serves it to no further pod, `keep` leaves
    it where it is (docs/design/verdicts.md).
    """

    mode: Literal["enforce", "warn", "off"] = "enforce"
    policies: Annotated[list[Policy], Meta(max_length=MAX_POLICIES)] = field(default_factory=list)
    recheck_interval: Annotated[float, Meta(ge=0)] = 21_600.0
    when_revoked: Literal["withdraw", "keep"] = "withdraw"

    def __post_init__(self) -> None:
        """Refuse an interval at which registries would do nothing else."""
        if 0 < self.recheck_interval < SHORTEST_RECHECK_SECONDS:
            raise ValueError(f"`recheckInterval` is 0 (never) or at least {SHORTEST_RECHECK_SECONDS:g} seconds")

    def files(self) -> Iterator[str]:
        """Yield the paths of the files whose content the answer depends on."""
        for policy in self.policies:
            yield from (key for key in policy.keys if not is_pem(key))
            if policy.trusted_root:
                yield policy.trusted_root


def is_pem(key: str) -> bool:
    """Return whether a configured key is the key itself, not the path of one."""
    return key.lstrip().startswith("-----BEGIN")
