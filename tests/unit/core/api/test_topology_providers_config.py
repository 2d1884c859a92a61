"""The configuration of built-in providers is checked when the file is read."""

import json

import pytest
from gkm.api.config import ConfigInvalid, parse
from gkm.api.topology_settings import TopologyProvider


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


@pytest.mark.parametrize("key", ["credentialsSecret", "maxMemoryBytes"])
def test_what_belongs_to_the_pod_of_a_provider_is_no_key_here(key: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"unknown field `{key}`"):
        provider("ufm", **{key: 1})
