"""Webhook configurations by their names, and the patch of their caBundle."""

import base64
import copy

import pytest
from gkm.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Json, Resource
from gkm_operator.webhooks.configurations import WebhookConfiguration, bundle_patch, bundles
from support.operator.webhook_configurations import a_configuration

STORED = {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("text", "resource"),
    [("x", VALIDATING_WEBHOOKS), ("validating/x", VALIDATING_WEBHOOKS), ("mutating/x", MUTATING_WEBHOOKS)],
)
def test_a_configuration_is_named_with_its_kind(text: str, resource: Resource[Json]) -> None:
    assert WebhookConfiguration.parse(text) == WebhookConfiguration("x", resource)


@pytest.mark.parametrize("text", ["", "mutating/", "another/x", "a/b/c"])
def test_another_text_names_no_configuration(text: str) -> None:
    with pytest.raises(ValueError, match="mutating/NAME"):
        WebhookConfiguration.parse(text)


def test_a_patch_changes_the_bundles_and_no_other_field_of_the_version_that_was_read() -> None:
    found = a_configuration("", "%%%", base64.b64encode(b"old").decode())
    found["metadata"] |= STORED
    patch = bundle_patch(copy.deepcopy(found), b"new")
    assert patch is not None
    assert patch["metadata"] == STORED
    for hook in found["webhooks"]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(b"new").decode()
    assert patch["webhooks"] == found["webhooks"]
    assert bundle_patch(found, b"new") is None
    assert list(bundles(found)) == [b"new"] * 3


def test_a_configuration_without_webhooks_needs_no_patch() -> None:
    assert bundle_patch({"metadata": STORED, "webhooks": None}, b"new") is None
