"""The check of the signatures of GKM's own images."""

import dataclasses
from typing import Any

import msgspec
import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict
from gkm_cli.doctor.checks import decide, running
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.installation.objects import InstalledPod
from hypothesis import given
from hypothesis import strategies as st

DIGEST = f"sha256:{'a' * 64}"
NAME = "registry.test/team/gkm-agent"
SIGNED = Verdict(verified=True, allowed=True, reason=Reason.NOT_REQUIRED, message="signed")
REFUSED = Verdict(verified=False, allowed=False, reason=Reason.SIGNATURE_MISSING, message="no signature was found")
WARNED = dataclasses.replace(REFUSED, allowed=True)
UNREACHABLE = Verdict(verified=None, allowed=False, reason=Reason.REGISTRY_UNAVAILABLE, message="no answer")
KEY = "-----BEGIN PUBLIC KEY-----"


def pod(image: str, image_id: str = "", name: str = "agent") -> InstalledPod:
    statuses = [{"name": name, "imageID": image_id}] if image_id else None
    return msgspec.convert(
        {
            "metadata": {"name": "gkm-agent-1", "namespace": "gkm-system"},
            "spec": {"containers": [{"name": "agent", "image": image}]},
            "status": {"containerStatuses": statuses},
        },
        InstalledPod,
    )


@pytest.mark.parametrize(
    ("image", "image_id", "expected"),
    [
        (f"{NAME}:1.0", f"{NAME}@{DIGEST}", [f"{NAME}:1.0@{DIGEST}"]),
        (f"{NAME}@{DIGEST}", "", [f"{NAME}@{DIGEST}"]),
        (f"{NAME}:1.0", "", [f"{NAME}:1.0"]),
        (f"{NAME}:1.0", DIGEST, [f"{NAME}:1.0"]),
        ("gkm-agent:1.0", f"docker.io/library/gkm-agent@{DIGEST}", []),
        ("localhost:5000/gkm-agent:1.0", f"x@{DIGEST}", [f"localhost:5000/gkm-agent:1.0@{DIGEST}"]),
    ],
    ids=["tag", "digest", "not started", "loaded under its name", "loaded", "loopback"],
)
def test_images_are_those_that_nodes_run(image: str, image_id: str, expected: list[str]) -> None:
    assert running([pod(image, image_id), pod(image, image_id)]) == expected


def findings(
    verdict: Verdict, *patterns: str, mode: str = "enforce", name: str = f"{NAME}:1.0@{DIGEST}"
) -> list[Finding]:
    policies = [Policy([KEY], images=[pattern]) for pattern in patterns]
    wanted = msgspec.convert({"mode": mode}, Verification)
    return list(decide([name], msgspec.structs.replace(wanted, policies=policies), lambda _ref, _wanted: verdict))


def test_a_signed_image_is_no_finding() -> None:
    assert findings(SIGNED, "registry.test/team/gkm-*") == []


@pytest.mark.parametrize(
    ("verdict", "severity"),
    [(REFUSED, Severity.PROBLEM), (WARNED, Severity.WARNING), (UNREACHABLE, Severity.NOT_CHECKED)],
)
def test_one_that_no_policy_accepts_is_a_problem_and_one_that_cannot_be_read_is_unknown(
    verdict: Verdict, severity: Severity
) -> None:
    (found,) = findings(verdict, "registry.test/*/gkm-agent")
    assert (found.severity, found.object) == (severity, f"image {NAME}:1.0@{DIGEST}")
    assert verdict.message in found.why


@pytest.mark.parametrize(
    "patterns",
    [(), ("*",), ("registry.test",), ("registry.test/*",), ("registry.test/team/*",), ("registry.test/team/llama",)],
)
def test_a_policy_about_caches_is_not_about_an_image_of_ours(patterns: tuple[str, ...]) -> None:
    assert findings(REFUSED, *patterns) == []


@pytest.mark.parametrize(("namespaces", "decides"), [([], True), (["gkm-*"], True), (["team-a"], False)])
def test_a_policy_of_other_namespaces_is_not_about_an_image_of_ours(namespaces: list[str], *, decides: bool) -> None:
    policy = Policy([KEY], images=[NAME], namespaces=namespaces)
    found = decide([f"{NAME}@{DIGEST}"], Verification(policies=[policy]), lambda _ref, _wanted: REFUSED)
    assert bool(list(found)) is decides


def test_only_the_policies_about_an_image_decide() -> None:
    passed: list[tuple[str | None, list[str]]] = []

    def verify(ref: Reference, wanted: Verification) -> Verdict:
        passed.append((ref.digest, [pattern for policy in wanted.policies for pattern in policy.images]))
        return SIGNED

    policies = [Policy([KEY], images=[pattern]) for pattern in ("*", "registry.test/team/gkm-*", "other.test/gkm-*")]
    assert list(decide([f"{NAME}@{DIGEST}"], Verification(policies=policies), verify)) == []
    assert passed == [(DIGEST, ["registry.test/team/gkm-*"])]


def test_switched_off_verification_has_no_findings() -> None:
    assert findings(REFUSED, NAME, mode="off") == []


def test_an_image_without_a_digest_is_unknown() -> None:
    (found,) = findings(SIGNED, NAME, name=f"{NAME}:1.0")
    assert found.severity is Severity.NOT_CHECKED


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_names_give_findings_and_no_error(names: list[str]) -> None:
    policies = [Policy([KEY], images=["*/gkm-*"])]
    found: list[Any] = list(decide(names, Verification(policies=policies), lambda _ref, _wanted: SIGNED))
    assert len(found) <= len(names)
