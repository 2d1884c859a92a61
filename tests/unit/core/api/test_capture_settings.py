"""The section `capture`: contradictions are refused, and environment variables override its scalars."""

from pathlib import Path

import pytest
from gkm.api.config import VARIABLES, Capture, CaptureSigning, Config, ConfigInvalid, load, parse

BY_KEY = CaptureSigning(key_file="/etc/gkm/cosign.key")


@pytest.mark.parametrize(
    ("capture", "pushed"),
    [
        (Capture(), False),
        (Capture(registry="registry.example"), False),
        (Capture(signing=BY_KEY), False),
        (Capture(registry="registry.example", signing=BY_KEY), True),
        (Capture(mode="request", registry="registry.example", signing=BY_KEY), True),
        (Capture(mode="off", registry="registry.example", signing=BY_KEY), False),
        (Capture(registry="r.example", signing=CaptureSigning(keyless=True, trusted_root="/r.json")), True),
    ],
)
def test_nothing_is_pushed_without_a_registry_and_a_signer(capture: Capture, pushed: bool) -> None:  # noqa: FBT001
    assert capture.is_pushed is pushed


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{signing: {keyFile: /k, keyless: true, trustedRoot: /r}}", "exclude each other"),
        ("{signing: {keyless: true}}", "needs `trustedRoot`"),
        ("{signing: {keyFile: /k, rekorURL: 'https://r.example'}}", "need `keyless: true`"),
        ("{signing: {keyFile: k}}", "capture.signing.keyFile"),
        ("{registry: 'https://registry.example'}", "capture.registry"),
        ("{registry: registry.example/UPPER}", "capture.registry"),
        ("{registry: registry.example/team:tag}", "capture.registry"),
        ("{bytesPerSecond: 1000}", "capture.bytesPerSecond"),
        ("{retention: 0}", "at `$.capture.retention`; to capture no files, set `capture.mode` to `off`"),
        ("{maxBytes: 0}", "at `$.capture.maxBytes`; to capture no files, set `capture.mode` to `off`"),
        ("{mode: always}", "allowed is auto or off or request"),
    ],
)
def test_a_contradiction_is_refused_with_its_path(text: str, cause: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"capture: {text}")
    assert cause in str(caught.value)


@pytest.mark.parametrize("key", ["retention", "maxBytes"])
def test_a_number_with_a_unit_is_no_switch(key: str) -> None:
    with pytest.raises(ConfigInvalid, match=rf"got `str` - at `\$\.capture\.{key}`$"):
        parse(f"capture: {{{key}: 7d}}")


def test_a_variable_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("capture: {mode: request, registry: registry.example, maxBytes: 5, signing: {keyFile: /a}}")
    environment = {
        "GKM_CAPTURE_REGISTRY": "other.example/team",
        "GKM_CAPTURE_KEY_FILE": "/b",
        "GKM_CAPTURE_BYTES_PER_SECOND": "1000000",
        "GKM_STATE": "/elsewhere",
    }
    assert load(file, environment).capture == Capture(
        mode="request",
        registry="other.example/team",
        signing=CaptureSigning(key_file="/b"),
        bytes_per_second=1_000_000,
        max_bytes=5,
    )
    assert load(None, {}) == Config()


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("GKM_CAPTURE_MODE", "on", "allowed is auto or off or request"),
        ("GKM_CAPTURE_BYTES_PER_SECOND", "fast", "Expected `int`"),
        ("GKM_CAPTURE_MIN_FREE_PERCENT", "91", "<= 90"),
        ("GKM_CAPTURE_KEYLESS", "true", "needs `trustedRoot`"),
        ("GKM_CAPTURE_REGISTY", "registry.example", "is unknown"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, cause: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load(None, {name: value})
    assert name in str(caught.value)
    assert cause in str(caught.value)


def test_every_variable_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "configuration.md").read_text()
    assert [name for name in VARIABLES if f"`{name}`" not in page] == []
