"""The section `network` of the configuration, and the removed section `grove`."""

import pytest
from gkm.api import config
from gkm.api.config import Config, ConfigInvalid, Network
from msgspec import ValidationError, convert


def test_the_feature_is_off_without_configuration() -> None:
    assert convert({}, Network) == Network()
    assert not Config().network.auto_mnnvl_enabled


def test_the_switch_has_the_name_of_groves_chart() -> None:
    assert config.parse("network: {autoMNNVLEnabled: true}").network == Network(auto_mnnvl_enabled=True)


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/mig-*", "nvidia.com/g*", "a/b", "example.com/GPU_a.b"]
)
def test_resources_are_qualified_names_with_any_rest(resource: str) -> None:
    assert convert({"gpuResources": [resource]}, Network).gpu_resources == [resource]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"gpuResources": ["gpu"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/*"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["*/gpu"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/g*u"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/[a-z]"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/gpu-"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/gpu\n"]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["nvidia.com/" + "a" * 64]}, r"matching regex .* at `\$\.gpuResources\[0\]`"),
        ({"gpuResources": ["a/b"] * 33}, r"length <= 32 - at `\$\.gpuResources`"),
        ({"gpuResources": "nvidia.com/gpu"}, r"got `str` - at `\$\.gpuResources`"),
        ({"gpuDeviceClasses": ["GPU"]}, r"matching regex .* at `\$\.gpuDeviceClasses\[0\]`"),
        ({"gpuDeviceClasses": ["a*"]}, r"matching regex .* at `\$\.gpuDeviceClasses\[0\]`"),
        ({"gpuDeviceClasses": ["a"] * 33}, r"length <= 32 - at `\$\.gpuDeviceClasses`"),
        ({"gpuResources": [], "gpuDeviceClasses": []}, "are both empty"),
        ({"mnnvlDialect": "enabled"}, r"enum value 'enabled' - at `\$\.mnnvlDialect`"),
        ({"placement": "always"}, r"enum value 'always' - at `\$\.placement`"),
        ({"placementLabel": "a b"}, r"matching regex .* at `\$\.placementLabel`"),
        ({"groveClusterRole": ""}, r"matching regex .* at `\$\.groveClusterRole`"),
        ({"groveClusterRole": "a/b"}, r"matching regex .* at `\$\.groveClusterRole`"),
        ({"groveClusterRole": ".."}, r"matching regex .* at `\$\.groveClusterRole`"),
        ({"autoMNNVLEnabled": "yes"}, r"got `str` - at `\$\.autoMNNVLEnabled`"),
    ],
)
def test_invalid_settings_are_refused(section: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        convert(section, Network)


@pytest.mark.parametrize(
    ("text", "help_with_it"),
    [
        ("network: {autoMnnvlEnabled: true}", "`autoMNNVLEnabled` may be meant"),
        ("network: {mnnvlDialect: mnnvl-groups}", "`mnnvl-group` may be meant"),
        ("network: {placement: always}", "allowed is none or preferred or required"),
        ("network: {gpuResources: [], gpuDeviceClasses: []}", "both empty; name one"),
    ],
)
def test_mistakes_are_explained_with_their_place(text: str, help_with_it: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(text)
    assert help_with_it in str(caught.value)
    assert f"at `$.{text.partition(':')[0]}" in str(caught.value)


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_removed_built_in_controllers_are_named_with_the_next_step(value: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(f"grove: {{builtInControllers: {value}}}", "configuration gkm.yaml")
    assert str(caught.value) == (
        "configuration gkm.yaml: Object contains unknown field `grove`; GKM no longer makes the pods of PodCliqueSets: "
        "install the Grove operator for them, and delete the section `grove` from the configuration"
    )
