"""The sections `network` and `grove` of the configuration."""

import pytest
from gkm.api import config
from gkm.api.config import Config, ConfigInvalid, Grove, Network
from msgspec import ValidationError, convert


def test_the_feature_is_off_without_configuration() -> None:
    assert (convert({}, Network), convert({}, Grove)) == (Network(), Grove())
    assert not Config().network.auto_mnnvl_enabled
    assert not Config().grove.built_in_controllers


def test_the_switch_has_the_name_of_groves_chart() -> None:
    assert config.parse("network: {autoMNNVLEnabled: true}").network == Network(auto_mnnvl_enabled=True)


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/mig-*", "nvidia.com/g*", "a/b", "example.com/GPU_a.b"]
)
def test_resources_are_qualified_names_with_any_rest(resource: str) -> None:
    assert convert({"gpuResources": [resource]}, Network).gpu_resources == [resource]


@pytest.mark.parametrize(
    "section",
    [
        {"gpuResources": ["gpu"]},
        {"gpuResources": ["nvidia.com/*"]},
        {"gpuResources": ["*/gpu"]},
        {"gpuResources": ["nvidia.com/g*u"]},
        {"gpuResources": ["nvidia.com/[a-z]"]},
        {"gpuResources": ["nvidia.com/gpu-"]},
        {"gpuResources": ["nvidia.com/gpu\n"]},
        {"gpuResources": ["nvidia.com/" + "a" * 64]},
        {"gpuResources": ["a/b"] * 33},
        {"gpuResources": "nvidia.com/gpu"},
        {"gpuDeviceClasses": ["GPU"]},
        {"gpuDeviceClasses": ["a*"]},
        {"gpuDeviceClasses": ["a"] * 33},
        {"gpuResources": [], "gpuDeviceClasses": []},
        {"mnnvlDialect": "enabled"},
        {"placement": "always"},
        {"placementLabel": "a b"},
        {"groveClusterRole": ""},
        {"groveClusterRole": "a/b"},
        {"groveClusterRole": ".."},
        {"autoMNNVLEnabled": "yes"},
    ],
)
def test_invalid_settings_are_refused(section: object) -> None:
    with pytest.raises(ValidationError):
        convert(section, Network)


@pytest.mark.parametrize(
    ("text", "help_with_it"),
    [
        ("network: {autoMnnvlEnabled: true}", "`autoMNNVLEnabled` may be meant"),
        ("network: {mnnvlDialect: mnnvl-groups}", "`mnnvl-group` may be meant"),
        ("network: {placement: always}", "allowed is none or preferred or required"),
        ("network: {gpuResources: [], gpuDeviceClasses: []}", "both empty; name one"),
        ("grove: {builtInController: true}", "`builtInControllers` may be meant"),
    ],
)
def test_mistakes_are_explained_with_their_place(text: str, help_with_it: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(text)
    assert help_with_it in str(caught.value)
    assert f"at `$.{text.partition(':')[0]}" in str(caught.value)
