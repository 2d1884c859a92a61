"""The doctor's checks of certificates, policies and keys."""

import base64
from datetime import timedelta

import pytest
from gkm_cli.doctor.installation import caches, configuration, webhook
from gkm_operator.admission import certificates
from support.cli.observations import NOW, briefly, cache, config, hook, observed


def test_one_valid_authority_of_a_bundle_is_enough() -> None:
    old, new = (certificates.make(["x"], NOW - timedelta(days=days)).authority for days in (200, 1))
    assert list(webhook.certificate(observed(webhook=hook(old, new)))) == []
    assert len(list(webhook.certificate(observed(webhook=hook(old))))) == 1
    assert list(webhook.bundle(observed(webhook=hook(old)))) == []


def test_the_certificate_of_cert_manager_is_read_from_its_object() -> None:
    def found(ends: str) -> list[tuple[str, str]]:
        certificate = {"status": {"notAfter": ends}}
        made = observed(webhook=hook(by_cert_manager=True), certificate=certificate)
        return briefly(webhook.certificate(made))

    assert found("2026-11-23T11:00:00Z") == [("problem", "Certificate gkm-system/gkm-admission")]
    assert found("2026-11-24T11:00:00Z") == []


@pytest.mark.parametrize("text", ["", "%%%", base64.b64encode(b"no certificate").decode(), "A" * (2 << 20)])
def test_a_bundle_without_a_certificate_is_a_finding(text: str) -> None:
    made = {"webhooks": [{"clientConfig": {"caBundle": text}}]}
    assert len(list(webhook.bundle(observed(webhook=made)))) == 1


def test_a_new_installation_without_policies_and_caches_is_only_warned() -> None:
    made = config(mode="enforce", policies=[])
    assert briefly(configuration.trust(observed(config_map=made))) == [("warning", "ConfigMap gkm-system/gkm-config")]
    assert briefly(configuration.trust(observed(config_map=made, caches=[cache()])))[0][0] == "problem"
    assert list(configuration.trust(observed(config_map=config(mode="off"), caches=[cache()]))) == []


@pytest.mark.parametrize(
    ("image", "namespace", "found"),
    [
        ("registry.example/team/caches/llama:1", "ml-apps", 0),
        ("registry.example/other/llama:1", "ml-apps", 1),
        ("registry.example/team/caches/llama:1", "elsewhere", 1),
        ("registry.example/team/caches/llama@sha256:1", "ml-apps", 0),
    ],
)
def test_a_policy_covers_an_image_as_the_controllers_see_it(image: str, namespace: str, found: int) -> None:
    policy = {"images": ["registry.example/team/*"], "namespaces": ["ml-*"], "keys": ["/etc/gkm/cosign.pub"]}
    made = observed(config_map=config(policies=[policy]), caches=[cache(image, namespace)])
    assert len(list(caches.no_policy(made))) == found


@pytest.mark.parametrize(
    ("key", "files", "found"),
    [
        ("/etc/gkm/cosign.pub", {}, 1),
        ("/etc/gkm/cosign.pub", {"cosign.pub": "/etc/passwd"}, 1),
        ("/etc/gkm/cosign.pub", {"cosign.pub": "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"}, 1),
        ("/run/secrets/cosign.pub", {}, 0),
        ("-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", {}, 1),
    ],
)
def test_a_key_is_read_from_the_configmap_and_from_no_file_here(key: str, files: dict[str, str], found: int) -> None:
    made = config(policies=[{"keys": [key]}])
    made["data"] |= files
    assert len(list(configuration.keys_readable(observed(config_map=made)))) == found
