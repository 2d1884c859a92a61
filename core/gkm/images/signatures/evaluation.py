"""Evaluation of one signature under one policy. Pure, except that `trust_material` reads keys and roots from files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec.structs import astuple

from gkm.api.policies import Identity, Policy
from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.signatures import entry_body, keyless, periods, trust_material
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.keys import PublicKey
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.images.signatures.trust_material import AuthorityFile, TrustedRootFile

_UNKNOWN_SIGNER = Signer()


@dataclass(frozen=True, slots=True)
class SignatureFinding:
    """The result for one signature under the policy with the index `policy`: whether it is valid, and the reason.

    `signer` is the key of the policy or the holder of the trusted certificate that made the signature. It is also set
    for an invalid signature, so that a person sees the signer; it is empty for an unknown signer. `signed` is the
    earliest time that a log or timestamp authority confirms for a valid signature.
    """

    form: SignatureForm
    ok: bool
    reason: str
    policy: int = 0
    signer: Signer = _UNKNOWN_SIGNER
    signed: datetime | None = None


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The keys, identities and trusted root of one policy."""

    index: int
    policy: Policy
    keys: tuple[PublicKey, ...]
    root: TrustedRootFile | None
    authorities: tuple[AuthorityFile, ...] = ()

    @classmethod
    def from_policy(cls, index: int, policy: Policy) -> "TrustPolicy":
        """Load the keys, the trusted root and the certificate authorities that a policy names from their files.

        Raises:
            GKMError: SIGNATURE_INVALID if one of them is unusable.
        """
        found = {key.key_id: key for key in map(trust_material.key, policy.keys)}
        root = trust_material.root(policy.trusted_root) if policy.trusted_root else None
        authorities = tuple(map(trust_material.authorities, policy.certificate_authorities))
        return cls(index, policy, tuple(found.values()), root, authorities)

    @property
    def entries(self) -> tuple[PublicKey | Identity, ...]:
        """Return the different keys and identities of the policy."""
        return (*self.keys, *dict.fromkeys(self.policy.identities))

    @property
    def required_signers(self) -> int:
        """Return how many different signers must have signed an image."""
        require = self.policy.require
        return 1 if require == "any" else len(self.entries) if require == "all" else require

    def place(self, ref: Reference) -> Reference:
        """Return the reference of an image in the repository with its signatures for this policy; raises GKMError."""
        return ref.in_repository(self.policy.signature_repository)

    def evaluate(self, signature: Signature, digest: str) -> SignatureFinding:
        """Evaluate one signature of an image; return whether it is valid, with the reason."""
        finding = SignatureFinding(signature.form, ok=False, reason=signature.problem, policy=self.index)
        if signature.problem:
            return finding
        try:
            if signature.certificate:
                finding = replace(finding, signer=self._holder(signature))
            else:
                key = self._key(signature)
                finding = replace(finding, signer=Signer(key.key_id))
                self._check_logged(signature, key)
            self._check_claims(finding, signature.claims, digest)
        except Untrusted as error:
            return replace(finding, reason=f"it {error}")
        kind = "identity" if signature.certificate else "key"
        return replace(finding, ok=True, reason=f"signed by a trusted {kind}", signed=self._time(signature))

    def _key(self, signature: Signature) -> PublicKey:
        for key in self.keys:
            if key.verifies(signature.signature, signature.signed):
                return key
        if not self.keys:
            raise Untrusted("was made by a key, the policy names identities only")
        raise Untrusted("was not made by a trusted key, or was changed since")

    def _holder(self, signature: Signature) -> Signer:
        refused = Untrusted("was made without a key (keyless), the policy names keys only")
        for authority in self.authorities:
            try:
                return keyless.signer_of_authority(signature, authority)
            except Untrusted as error:
                refused = error
        if self.root is None or not any(identity.issuer for identity in self.policy.identities):
            raise refused
        return keyless.signer(signature, self.root)

    def _check_logged(self, signature: Signature, key: PublicKey) -> None:
        tlog = self.policy.tlog
        if tlog == "ignored" or (tlog == "optional" and (self.root is None or signature.entry is None)):
            return
        if signature.entry is None or self.root is None:
            raise Untrusted("has no log entry, and the policy requires one")
        periods.times(signature, signature.entry, self.root.trusted)
        entry_body.check(signature.entry, signature, key.der)

    def _check_claims(self, finding: SignatureFinding, claims: Sequence[str], digest: str) -> None:
        if self.is_unnamed_identity(finding):
            raise Untrusted(f"was made by {finding.signer}, whom the policy does not name")
        # Only a verified signature makes the text meaningful. A signature that names another digest is a copy.
        if digest not in claims:
            raise Untrusted("signs another image")

    def _time(self, signature: Signature) -> datetime | None:
        ignored = self.policy.tlog == "ignored" and not signature.certificate
        if signature.entry is None or self.root is None or ignored:
            return None
        try:
            return min(periods.times(signature, signature.entry, self.root.trusted), default=None)
        except Untrusted:
            # A period ended since the check.
            return None

    def is_unnamed_identity(self, finding: SignatureFinding) -> bool:
        """Return whether a valid certificate made the signature, whose holder the policy does not name; False for keys.

        The signed digest is not considered.
        """
        return bool(finding.signer.identity) and not self.trusts(finding.signer)

    def is_satisfied(self, signers: Iterable[Signer]) -> bool:
        """Return whether these signers match enough different keys and identities of the policy."""
        entries = self.entries
        different = sorted(set(signers), key=astuple)
        matches = [[i for i, entry in enumerate(entries) if _matches_entry(entry, signer)] for signer in different]
        return max_matching(matches) >= self.required_signers

    def trusts(self, signer: Signer) -> bool:
        """Return whether a signer matches a key or identity of the policy."""
        return any(_matches_entry(entry, signer) for entry in self.entries)


def _matches_entry(entry: PublicKey | Identity, signer: Signer) -> bool:
    if isinstance(entry, PublicKey):
        return signer.key_id == entry.key_id
    return entry.matches(signer.issuer, signer.identity)


def max_matching(matches: Sequence[Sequence[int]]) -> int:
    """Return how many signers can be matched to different entries.

    `matches` has the possible entries of each signer. A signer that matches two identities is one signer, and must not
    take the only entry that another signer matches. So the function computes a maximum bipartite matching by augmenting
    paths.
    """
    assigned: dict[int, int] = {}

    def assign(signer: int, tried: set[int]) -> bool:
        for entry in matches[signer]:
            if entry not in tried:
                tried.add(entry)
                if entry not in assigned or assign(assigned[entry], tried):
                    assigned[entry] = signer
                    return True
        return False

    return sum(assign(signer, set()) for signer in range(len(matches)))
