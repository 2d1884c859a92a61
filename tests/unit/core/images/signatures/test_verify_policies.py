"""How policies count signatures and signers."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from gkm.api.config import ConfigInvalid, Identity, Policy, Verification, parse
from gkm.api.errors import Reason
from gkm.images.signatures.evaluation import max_matching
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import Site
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, payload_of, push_bundle, push_legacy, sign_bundle
from support.sigstore.keyless import Flaw, Person, Service
from support.sigstore.services import Sigstore

SIGSTORE = Sigstore()
ALICE, BOB = Person("alice@example.test"), Person("bob@example.test")
KEY, SECOND = SigningKey(), SigningKey()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(SIGSTORE.write_trusted_root(tmp_path))


def pem(*keys: SigningKey) -> list[str]:
    return [key.public_pem.decode() for key in keys]


def named(*people: Person) -> list[Identity]:
    return [Identity(person.issuer, person.subject) for person in people]


def sign(site: Site, *signers: SigningKey | Person, log: int = 1, flaw: Flaw = Flaw.NONE) -> None:
    target = Target(site.real.host, site.ref.repository)
    for signer in signers:
        push_bundle(target, site.ref.target, Service(SIGSTORE, log).bundle(site.ref.target, signer, flaw))


def verdict(site: Site, *policies: Policy) -> Verdict:
    return Verifier(Verification(policies=list(policies))).verify(site.client, site.ref, "team")


@pytest.mark.parametrize(
    ("require", "signers", "verified"),
    [
        ("any", [], False),
        ("any", [ALICE], True),
        ("any", [SECOND], True),
        ("all", [KEY, SECOND, ALICE], False),
        ("all", [KEY, SECOND, ALICE, BOB], True),
        (2, [KEY], False),
        (2, [KEY, KEY], False),
        (2, [ALICE, ALICE], False),
        (2, [KEY, ALICE], True),
        (3, [KEY, ALICE, ALICE], False),
        (3, [KEY, ALICE, BOB], True),
    ],
)
def test_different_signers_are_counted(
    site: Site,
    root: str,
    require: str,
    signers: list[SigningKey | Person],
    verified: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    sign(site, *signers)
    policy = Policy(pem(KEY, SECOND), identities=named(ALICE, BOB), require=require, trusted_root=root)  # type: ignore[arg-type]
    answer = verdict(site, policy)
    assert answer.verified is verified
    assert len(answer.findings) == len(signers)
    assert answer.reason is (Reason.COSIGN_SUCCESS if verified else Reason.SIGNATURE_MISSING)


def test_a_key_that_is_listed_twice_counts_once(site: Site) -> None:
    sign(site, KEY)
    assert verdict(site, Policy(pem(KEY, KEY), require=2)).verified is False
    assert verdict(site, Policy(pem(KEY, KEY), require="all")).verified is True


def test_a_signer_that_matches_two_identities_counts_once(site: Site, root: str) -> None:
    anybody = Identity(ALICE.issuer, subject_reg_exp=r".*@example\.test")
    policy = Policy(identities=[anybody, *named(ALICE)], require="all", trusted_root=root)
    sign(site, ALICE)
    assert verdict(site, policy).verified is False
    sign(site, BOB)
    assert verdict(site, policy).verified is True


@pytest.mark.parametrize(
    ("stands", "count"),
    [([], 0), ([[]], 0), ([[0]], 1), ([[0], [0]], 1), ([[0, 1], [0]], 2), ([[0, 1], [0, 1], [0, 1]], 2)],
)
def test_each_signer_gets_an_entry_of_its_own(stands: Sequence[Sequence[int]], count: int) -> None:
    assert max_matching(stands) == count


@pytest.mark.parametrize("order", [1, -1])
def test_a_broad_policy_does_not_shadow_a_strict_one(site: Site, order: int) -> None:
    broad, strict = Policy(pem(KEY)), Policy(pem(SECOND), images=["*/team/*"])
    policies = [broad, strict][::order]
    sign(site, KEY)
    answer = verdict(site, *policies)
    assert (answer.verified, f"(policies[{policies.index(strict)}] for */team/*)" in answer.message) == (False, True)
    sign(site, SECOND)
    assert verdict(site, *policies).verified is True


@pytest.mark.parametrize(
    ("images", "named"),
    [
        (["*"], "policies[0] for *"),
        (["other.test/*", "*/team/*", "*:*"], "policies[0] for */team/*, *:*"),
        (["*", "*/team/*", "*:*", "*/*"], "policies[0] for *, */team/*, and 2 more"),
        (["*/" + "*" * 80], "policies[0] for */" + "*" * 57 + "…"),
    ],
)
def test_a_refusal_names_the_policy_by_its_index_and_the_globs_that_cover_the_image(
    site: Site, images: list[str], named: str
) -> None:
    assert f" ({named}); no signature was found" in verdict(site, Policy(pem(KEY), images=images)).message


@pytest.mark.parametrize(
    ("policies", "number"),
    [
        ([], "none is"),
        ([Policy(pem(KEY), images=["other.test"])], "1 is"),
        ([Policy(pem(KEY), images=["other.test"]), Policy(pem(KEY), namespaces=["else"])], "2 are"),
    ],
)
def test_the_refusal_of_an_uncovered_image_names_the_next_step(site: Site, policies: list[Policy], number: str) -> None:
    message = verdict(site, *policies).message
    assert message.startswith(f"no verification policy covers {site.ref.name} in namespace team ({number} configured);")
    assert "ask an administrator to add one to verification.policies" in message


def test_the_stamp_changes_with_the_files_that_policies_name_and_with_nothing_else(tmp_path: Path) -> None:
    key, root = tmp_path / "a.pub", tmp_path / "root.json"
    key.write_bytes(KEY.public_pem)
    by_file = Policy([str(key), *pem(SECOND)], trusted_root=str(root))
    verifier = Verifier(Verification(policies=[by_file, by_file]))
    seen = [verifier.stamp()]
    assert verifier.stamp() == seen[0]
    root.write_text("{}")
    seen.append(verifier.stamp())
    key.write_bytes(SECOND.public_pem + b"\n")
    seen.append(verifier.stamp())
    key.unlink()
    seen.append(verifier.stamp())
    assert len(set(seen)) == len(seen)


def test_each_finding_names_its_policy(site: Site) -> None:
    sign(site, KEY)
    answer = verdict(site, Policy(pem(KEY)), Policy(pem(SECOND)))
    assert [(finding.policy, finding.ok) for finding in answer.findings] == [(0, True), (1, False)]


def test_a_policy_that_does_not_cover_the_image_demands_nothing(site: Site) -> None:
    sign(site, KEY)
    assert verdict(site, Policy(pem(SECOND), images=["other.example/*"]), Policy(pem(KEY))).verified is True


@pytest.mark.parametrize("form", ["legacy", "bundle"])
@pytest.mark.parametrize(
    ("tlog", "log", "flaw", "verified"),
    [
        ("ignored", 0, Flaw.NONE, True),
        ("ignored", 1, Flaw.FLIPPED_BODY, True),
        ("optional", 0, Flaw.NONE, True),
        ("optional", 1, Flaw.NONE, True),
        ("optional", 1, Flaw.FLIPPED_BODY, False),
        ("optional", 1, Flaw.OTHER_ENTRY, False),
        ("required", 0, Flaw.NONE, False),
        ("required", 1, Flaw.NONE, True),
        ("required", 1, Flaw.FLIPPED_BODY, False),
        ("required", 1, Flaw.FLIPPED_PROMISE, False),
        ("required", 1, Flaw.OTHER_ENTRY, False),
        ("required", 1, Flaw.OTHER_LOG, False),
    ],
)
def test_the_policy_decides_the_role_of_the_log(  # noqa: PLR0917 -- fixtures and columns
    site: Site,
    root: str,
    form: str,
    tlog: str,
    log: int,
    flaw: Flaw,
    verified: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    target, digest = Target(site.real.host, site.ref.repository), site.ref.target
    if form == "legacy":
        push_legacy(target, digest, *Service(SIGSTORE, log).legacy(payload_of(target, digest), KEY, flaw))
    else:
        sign(site, KEY, log=log, flaw=flaw)
    policy = Policy(pem(KEY), tlog=tlog, trusted_root=root)  # type: ignore[arg-type]
    assert verdict(site, policy).verified is verified


def test_a_signature_by_key_does_not_count_for_an_identity(site: Site, root: str) -> None:
    sign(site, KEY)
    answer = verdict(site, Policy(identities=named(ALICE), trusted_root=root))
    assert (answer.verified, answer.reason) == (False, Reason.SIGNATURE_INVALID)
    assert "the policy names identities only" in answer.message


def test_every_signature_has_its_finding(site: Site, root: str) -> None:
    sign(site, KEY, SECOND, ALICE, BOB)
    answer = verdict(site, Policy(pem(KEY), identities=named(ALICE), trusted_root=root))
    found = {(finding.ok, finding.signer.key_id, finding.signer.identity) for finding in answer.findings}
    assert found == {
        (True, KEY.hint, ""),
        (False, "", ""),
        (True, "", ALICE.subject),
        (False, "", BOB.subject),
    }


def test_a_flood_of_artifacts_is_truncated_and_reported(site: Site) -> None:
    for _ in range(65):
        sign_bundle(Target(site.real.host, site.ref.repository), site.ref.target, SECOND)
    answer = verdict(site, Policy(pem(KEY)))
    assert "only the first 64 were read" in answer.findings[-1].reason
    assert "and 61 more" in answer.message


PERSON = "{issuer: i, subject: s}"


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        ("{}", "at least one of"),
        ("{keys: [a], require: 2}", "not possible"),
        ("{keys: [a], require: 0}", "require"),
        ("{keys: [a], require: some}", "require"),
        ("{keys: [a], require: 1.5}", "require"),
        ("{keys: [a], require: true}", "require"),
        ("{keys: [a], tlog: required}", "trustedRoot"),
        ("{keys: [a], tlog: maybe}", "tlog"),
        ("{keys: [a], images: []}", "images"),
        ("{keys: a}", "keys"),
        (f"{{keys: [{', '.join('a' * 33)}]}}", "keys"),
        (f"{{identities: [{PERSON}]}}", "trustedRoot"),
        (f"{{identities: [{PERSON}], trustedRoot: f, tlog: ignored}}", "without the log"),
        ("{identities: [{subject: s}], trustedRoot: f}", "issuer"),
        ("{identities: [{issuer: '', subject: s}], trustedRoot: f}", "issuer"),
        ("{identities: [{issuer: i}], trustedRoot: f}", "either `subject` or"),
        ("{identities: [{issuer: i, subject: s, subjectRegExp: s}], trustedRoot: f}", "either `subject` or"),
        ("{identities: [{issuer: i, subjectRegExp: '('}], trustedRoot: f}", "no regular expression"),
        ("{identities: [{issuer: i, subject: s, issuerRegExp: i}], trustedRoot: f}", "issuerRegExp"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused_with_its_path(policy: str, what: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"verification: {{policies: [{policy}]}}")
    assert "$.verification.policies[0]" in str(caught.value)
    assert what in str(caught.value)


def test_the_files_that_a_verdict_depends_on_are_listed() -> None:
    policies = [Policy(["/k/a.pub", *pem(KEY)]), Policy(identities=named(ALICE), trusted_root="/r/root.json")]
    assert list(Verification(policies=policies).files()) == ["/k/a.pub", "/r/root.json"]
