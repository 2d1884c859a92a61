"""Is this image signed by whom the policies name? One verdict, with the reason a person reads."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec.structs import astuple

from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.signers import Signer
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.found import find, may_pass
from gkm.images.signatures.judging import Finding, Trust
from gkm.images.signatures.keys import PublicKey
from gkm.images.signatures.log_lookup import Lookups
from gkm.images.signatures.material import Material, stamp

__all__ = ("Finding", "Verdict", "Verifier")

SHOWN = 4
"""So many signers and findings stand in a message: a line stays a line."""
SHOWN_GLOBS = 2
MAX_GLOB = 60
"""Of the globs of a policy that cover an image, so many stand in a message, and so much of each: a person finds it."""
_NAMED_NO_MORE = "which no policy names any more"
VERIFY_SECONDS = 60.0
"""How long the signatures of one image may take to arrive, all together: each answer has its own limit besides."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification came to.

    `verified` is None when nobody looked, or the registry could not say: then what it did show does not suffice.
    `allowed` says whether the image may be used under the configured mode; a person reads `message`, which says what
    was looked for and what was found. `findings` has every signature once for each policy that covers the image.
    """

    verified: bool | None
    allowed: bool
    reason: Reason
    message: str
    findings: tuple[Finding, ...] = ()

    @property
    def signers(self) -> tuple[Signer, ...]:
        """Return whose signatures count, each once."""
        return tuple(sorted({finding.signer for finding in self.findings if finding.ok}, key=astuple))

    @property
    def signed(self) -> datetime | None:
        """Return the earliest time that is vouched for of a signature that counts."""
        times = (finding.signed for finding in self.findings if finding.ok)
        return min((time for time in times if time is not None), default=None)


class Verifier:
    """Applies the configured policies. Thread-safe.

    Every policy that covers an image must be satisfied (see `Policy`). Every signature is judged, also where the first
    would do: the answer says why each counts or not, at the cost of some milliseconds each, for at most 128 of them.
    """

    def __init__(self, config: Verification, seconds: float = VERIFY_SECONDS) -> None:
        self._config = config
        self._seconds = seconds
        self._material = Material()

    def stamp(self) -> Hashable:
        """Return what changes with the files that the policies name: an earlier verdict says nothing of later ones."""
        return tuple(stamp(path) for path in dict.fromkeys(self._config.files()))

    def verify(self, registry: Registry, ref: Reference, namespace: str | None) -> Verdict:
        """Return the verdict on a pinned image that is wanted in a namespace (None: cluster-wide).

        Never raises for what a registry or an image does: that is a verdict too.
        """
        if self._config.mode == "off":
            return Verdict(None, allowed=True, reason=Reason.NOT_REQUIRED, message="verification is switched off")
        try:
            verdict = self._verdict(registry, ref, namespace)
        except GKMError as error:
            verdict = _cannot_say(error) if may_pass(error) else _refused(error.reason, str(error))
        return self._by_mode(verdict)

    def revoked(self, ref: Reference, namespace: str | None, signers: Sequence[Signer]) -> Verdict | None:
        """Return the refusal of an image that was let through by `signers`, where the policies of now take that back.

        They do where one of the signers is named no more and the others do not suffice, where no policy covers the
        image any more, and where a key or trusted root cannot be used. None where only a registry can say: a policy
        may want more than before. Nothing is read but the files of policies; never raises.
        """
        if self._config.mode == "off":
            return None
        try:
            trusts = self._trusts(ref, namespace)
        except GKMError as error:
            return self._by_mode(_refused(error.reason, str(error)))
        if not trusts:
            return self._by_mode(_refused(Reason.SIGNATURE_MISSING, self._uncovered(ref, namespace)))
        named = [signer for signer in signers if any(trust.names(signer) for trust in trusts)]
        wanting = next((trust for trust in trusts if not trust.satisfied(named)), None)
        if wanting is None or len(named) == len(signers):
            return None
        lost = [signer for signer in signers if signer not in named]
        reason = Reason.SIGNATURE_INVALID if any(signer.key_id for signer in lost) else Reason.IDENTITY_MISMATCH
        by = _list([str(signer) for signer in lost], ", ")
        return self._by_mode(_refused(reason, f"{_wanted(ref, wanting)}it was signed by {by}, {_NAMED_NO_MORE}"))

    def _by_mode(self, verdict: Verdict) -> Verdict:
        if self._config.mode == "warn" and not verdict.allowed:
            return replace(verdict, allowed=True, message=f"{verdict.message} (allowed: verification only warns)")
        return verdict

    def _trusts(self, ref: Reference, namespace: str | None) -> list[Trust]:
        return [
            Trust.of(index, policy, self._material)
            for index, policy in enumerate(self._config.policies)
            if _covers(policy, ref, namespace)
        ]

    def _uncovered(self, ref: Reference, namespace: str | None) -> str:
        return _uncovered(ref, namespace, len(self._config.policies))

    def _verdict(self, registry: Registry, ref: Reference, namespace: str | None) -> Verdict:
        trusts = self._trusts(ref, namespace)
        if not trusts:
            return _refused(Reason.SIGNATURE_MISSING, self._uncovered(ref, namespace))
        lookups = Lookups(time.monotonic() + self._seconds)
        with registry.hosts.within(self._seconds):
            found = find(registry, ref)
        judged = [
            (trust, tuple(trust.judge(lookups.completed(each, trust), ref.target) for each in found.signatures))
            for trust in trusts
        ]
        unread = found.unread or lookups.unread
        findings = tuple(finding for _, of_policy in judged for finding in of_policy)
        for trust, of_policy in judged:
            if not trust.satisfied(finding.signer for finding in of_policy if finding.ok):
                if unread is not None:
                    # A good signature may lie where we could not look: that is no refusal.
                    return _cannot_say(unread, findings)
                return _refused(_reason(trust, of_policy), _wanted(ref, trust) + _found(of_policy), findings)
        by = _list(sorted({str(finding.signer) for finding in findings if finding.ok}), ", ")
        return Verdict(
            verified=True,
            allowed=True,
            reason=Reason.COSIGN_SUCCESS,
            message=f"{ref.target} is signed by {by}",
            findings=findings,
        )


def _covers(policy: Policy, ref: Reference, namespace: str | None) -> bool:
    in_namespace = not policy.namespaces or (
        namespace is not None and any(fnmatchcase(namespace, pattern) for pattern in policy.namespaces)
    )
    return in_namespace and any(ref.fits(pattern) for pattern in policy.images)


def _reason(trust: Trust, findings: Sequence[Finding]) -> Reason:
    if all(finding.ok for finding in findings):
        # What is there is good; it is not enough, or nothing.
        return Reason.SIGNATURE_MISSING
    if not any(finding.ok for finding in findings) and any(trust.is_stranger(finding) for finding in findings):
        return Reason.IDENTITY_MISMATCH
    return Reason.SIGNATURE_INVALID


def _uncovered(ref: Reference, namespace: str | None, policies: int) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    number = "none is" if not policies else "1 is" if policies == 1 else f"{policies} are"
    todo = "ask an administrator to add one to verification.policies, or use an image that is covered"
    return f"no verification policy covers {ref.name}{where} ({number} configured); {todo}"


def _wanted(ref: Reference, trust: Trust) -> str:
    entries = trust.entries
    names = _list([f"{e.short_id}…" if isinstance(e, PublicKey) else str(e) for e in entries], ", ")
    noun = "identity" if not trust.keys else "key" if len(trust.keys) == len(entries) else "key or identity"
    plural = {"identity": "identities", "key": "keys", "key or identity": "keys and identities"}[noun]
    if len(entries) == 1:
        quantity = noun
    elif trust.policy.require == "all":
        quantity = f"all of the {plural}"
    else:
        quantity = f"{'one' if trust.needed == 1 else trust.needed} of the {plural}"
    logged = ", logged" if trust.policy.tlog == "required" else ""
    return f"{ref} needs a signature by {quantity} {names}{logged} ({_policy(ref, trust)}); "


def _policy(ref: Reference, trust: Trust) -> str:
    """Return which policy it is, as a person finds it in the configuration: its place and why it covers the image."""
    globs = [glob for glob in trust.policy.images if ref.fits(glob)]
    shown = [glob if len(glob) <= MAX_GLOB else f"{glob[: MAX_GLOB - 1]}…" for glob in globs]
    return f"policies[{trust.index}] for {_list(shown, ', ', SHOWN_GLOBS)}"


def _found(findings: Sequence[Finding]) -> str:
    if not findings:
        return "no signature was found"
    return "found " + _list([f"{f.form} signature: {f.reason}{_by(f)}" for f in findings], "; ")


def _by(finding: Finding) -> str:
    return f" ({finding.signer})" if finding.ok else ""


def _list(texts: Sequence[str], separator: str, shown: int = SHOWN) -> str:
    more = f"{separator}and {len(texts) - shown} more" if len(texts) > shown else ""
    return separator.join(texts[:shown]) + more


def _cannot_say(error: GKMError, findings: tuple[Finding, ...] = ()) -> Verdict:
    return Verdict(verified=None, allowed=False, reason=error.reason, message=str(error), findings=findings)


def _refused(reason: Reason, message: str, findings: tuple[Finding, ...] = ()) -> Verdict:
    return Verdict(verified=False, allowed=False, reason=reason, message=message, findings=findings)
