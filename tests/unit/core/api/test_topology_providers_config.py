"""The configuration of built-in providers is checked when the file is read."""

import json

import pytest
from gkm.api.config import ConfigInvalid, parse
from gkm.api.config_errors import REMOVED
from gkm.api.topology_settings import TopologyProvider
from support.operator.deployment import ROOT


def provider(name: str, **settings: object) -> TopologyProvider:
    return parse(json.dumps({"topology": {"providers": [{"name": name, **settings}]}})).topology.providers[0]


@pytest.mark.parametrize(
    ("name", "config", "words"),
    [
        ("lldp", {"interfaces": "ens*"}, "Expected `array`, got `str` - at `$.interfaces`"),
        ("lldp", {"interfaces": []}, "at `$.interfaces`"),
        ("lldp", {"interfaces": [""]}, "at `$.interfaces[0]`"),
        ("lldp", {"interface": ["ens*"]}, "unknown field `interface`"),
        ("infiniband", {"interfaces": ["ens*"]}, "unknown field `interfaces`"),
        ("labels", {"keys": []}, "unknown field `keys`"),
    ],
)
def test_a_config_that_the_provider_does_not_know_is_refused(name: str, config: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        provider(name, config=config)
    assert f"the config of provider {name} is not valid" in str(caught.value)
    assert words in str(caught.value)
    assert "$.topology.providers[0]" in str(caught.value)


def test_other_configs_belong_to_their_providers() -> None:
    assert provider("lldp", config={"interfaces": ["ens*"]}).config == {"interfaces": ["ens*"]}
    assert provider("acme", config={"anything": [1]}).config == {"anything": [1]}


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("credentialsSecret", "fabric-manager", "name the Secret in `topology.providers[].secret` of the chart"),
        ("maxMemoryBytes", 1 << 30, "set `topology.providers[].resources` of the chart"),
    ],
)
def test_what_belongs_to_the_pod_of_a_provider_names_the_value_of_the_chart(
    key: str, value: object, instead: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        provider("ufm", **{key: value})
    assert f"unknown field `{key}` - at `$.topology.providers[0]`; a provider is a pod" in str(caught.value)
    assert f"{instead}, and delete the key" in str(caught.value)


def test_the_directory_of_further_providers_is_one_of_their_pods() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse('{"topology": {"providerPath": "/providers"}}')
    assert "unknown field `providerPath` - at `$.topology`; a provider is a pod" in str(caught.value)
    assert "name the directory in `topology.providers[].path` of the chart, and delete the key" in str(caught.value)


@pytest.mark.parametrize("named", ["path", "secret", "resources"])
def test_the_values_that_removed_keys_name_are_in_the_chart(named: str) -> None:
    schema = json.loads((ROOT / "deploy/chart/gkm/values.schema.json").read_text(encoding="utf-8"))
    assert f"topology.providers[].{named}`" in " ".join(REMOVED.values())
    assert named in schema["properties"]["topology"]["properties"]["providers"]["items"]["properties"]
