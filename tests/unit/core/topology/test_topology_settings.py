"""The sections `topology` and `packing` of the configuration."""

import pytest
from gkm.api.topology_settings import Packing, Topology
from gkm.packing.values import Policy
from msgspec import ValidationError, convert


def test_nothing_needs_to_be_configured() -> None:
    assert (convert({}, Topology), convert({}, Packing)) == (Topology(), Packing())


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_of_the_planner_can_be_the_default(policy: Policy) -> None:
    assert convert({"policy": str(policy), "planTTL": 60}, Packing) == Packing(policy.value, 60.0)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"missingFabric": "merge"}, "Invalid enum value 'merge'"),
        ({"labels": {"rack": ["a b"]}}, r"matching regex .* at `\$\.labels\.rack\[0\]`"),
        ({"labels": {"rack": ["a/b/c"]}}, r"matching regex .* at `\$\.labels\.rack\[0\]`"),
        ({"labels": {"rack": [""]}}, r"matching regex .* at `\$\.labels\.rack\[0\]`"),
        ({"labels": {"rack": ["r"] * 17}}, r"length <= 16 - at `\$\.labels\.rack`"),
        ({"labels": {"zone": ["z"]}}, "unknown field `zone`"),
        ({"defaults": {"region": ""}}, r"matching regex .* at `\$\.defaults\.region`"),
        ({"defaults": {"cluster": "a/b"}}, r"matching regex .* at `\$\.defaults\.cluster`"),
    ],
)
def test_invalid_settings_are_refused(section: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        convert(section, Topology)


@pytest.mark.parametrize(
    "section",
    [
        {"levels": [{"name": "block", "keys": ["block", "level.gkm.io/block"]}]},
        {"labels": {"domain": ["level.gkm.io/nvlink"]}},
        {"labels": {"health": ["level.gkm.io/health"]}},
    ],
)
def test_labels_that_the_controllers_write_are_no_source_of_the_tree(section: object) -> None:
    with pytest.raises(ValidationError, match=r"'level\.gkm\.io/[a-z]+' cannot be a source"):
        convert(section, Topology)


@pytest.mark.parametrize("name", ["kueue", "kai"])
def test_a_topology_object_needs_the_labels_on_nodes(name: str) -> None:
    with pytest.raises(ValidationError, match=f"{name} needs nodeLabels: true"):
        convert({name: "gpus"}, Topology)
    assert getattr(convert({name: "gpus", "nodeLabels": True}, Topology), name) == "gpus"


def test_the_globs_of_interfaces_default_to_all() -> None:
    assert Topology().counted("lldp") == (["*"], ["*"])
    section = {"providers": [{"name": "lldp", "config": {"interfaces": ["rail*", "ens?"]}}]}
    assert convert(section, Topology).counted("lldp") == (["rail*", "ens?"], ["*"])


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("infiniband", {"adapters": ["mlx5_[0-7]"]}),
        ("ufm", {"adapters": ["mlx5_[0-7]"], "url": "https://ufm.example"}),
        ("lldp", {"interfaces": ["mlx5_[0-7]"]}),
    ],
)
def test_adapters_and_switches_that_count_are_a_setting_of_every_network(name: str, config: dict[str, object]) -> None:
    section = {"providers": [{"name": name, "config": config | {"switches": ["!*storage*"]}}]}
    assert convert(section, Topology).counted(name) == (["mlx5_[0-7]"], ["!*storage*"])


@pytest.mark.parametrize(
    ("name", "config", "where"),
    [
        ("lldp", {"interfaces": "ens*"}, r"Expected `array`, got `str` - at `\$\.interfaces`"),
        ("lldp", {"interfaces": []}, "interfaces"),
        ("lldp", {"interfaces": [1]}, "interfaces"),
        ("lldp", {"interface": ["ens*"]}, "`interface`"),
        ("labels", {"keys": ["rack"]}, "`keys`"),
        ("infiniband", {"file": "/survey"}, "`file`"),
    ],
)
def test_providers_without_io_of_their_own_refuse_an_unknown_config(name: str, config: object, where: str) -> None:
    with pytest.raises(ValidationError, match=rf"the config of provider {name} is not valid: .*{where}"):
        convert({"providers": [{"name": name, "config": config}]}, Topology)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"policy": "best"}, "Invalid enum value 'best'"),
        ({"planTTL": 0}, r"> 0\.0 - at `\$\.planTTL`"),
        ({"planTTL": -1}, r"> 0\.0 - at `\$\.planTTL`"),
        ({"planTTL": 1e9}, r"<= 604800\.0 - at `\$\.planTTL`"),
        ({"ttl": 1}, "unknown field `ttl`"),
    ],
)
def test_the_lifetime_of_a_plan_is_bounded(section: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        convert(section, Packing)
