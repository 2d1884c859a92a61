"""The examples of docs/features/computedomains.md do what the page states."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from gkm.api import computedomains, config
from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.api.pod_specs import PodSpec
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import MAX_DOMAINS, domain_name, domain_of, required_domains
from support.grove.json_patch import patched
from support.grove.typed import GPUS, a_pod_clique

PAGE = (Path(__file__).parents[4] / "docs" / "features" / "computedomains.md").read_text()
EXAMPLES = [yaml.load(text, yaml.CSafeLoader) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
SWITCH, QUOTA, AUTO, GROUPS, INJECTED, JOB = EXAMPLES
NAMES = [re.findall(r"`([^`]+)`", line) for line in re.findall(r"^ComputeDomains: (.*?\.)(?: |$)", PAGE, re.MULTILINE)]


def as_set(example: Any) -> PodCliqueSet:  # noqa: ANN401 -- YAML
    return msgspec.convert(example, PodCliqueSet)


@pytest.mark.parametrize(
    ("example", "names"), [(AUTO, NAMES[0]), (GROUPS, NAMES[1])], ids=["auto-mnnvl", "mnnvl-group"]
)
def test_an_example_requires_the_domains_that_the_page_names(example: Any, names: list[str]) -> None:  # noqa: ANN401 -- YAML
    given = as_set(example)
    assert not list(dialect.creation_problems(given, enabled=True))
    required = required_domains(given, GPUS)
    assert sorted(domain_name(given.metadata.name, key.replica, key.group) for key in required) == names


def test_the_claim_is_added_as_the_page_shows_it() -> None:
    key = domain_of(as_set(AUTO), a_pod_clique("my-pcs", "0", "worker"))
    assert key is not None
    pod = AUTO["spec"]["template"]["cliques"][0]["spec"]["podSpec"]
    template = domain_name("my-pcs", key.replica, key.group)
    operations = inject(msgspec.convert(pod, PodSpec), template, "/spec/podSpec", GPUS).operations
    assert patched({"spec": {"podSpec": pod}}, operations) == INJECTED


@pytest.mark.parametrize(("clique", "group"), [("decode-worker", "decode"), ("encoder", None)])
def test_a_standalone_clique_of_the_example_is_in_its_group(clique: str, group: str | None) -> None:
    key = domain_of(as_set(GROUPS), a_pod_clique("disagg", "0", clique))
    assert (key.group if key else None) == group


def test_the_quota_is_for_the_kind_that_gkm_creates() -> None:
    assert set(QUOTA["spec"]["hard"]) == {f"count/{computedomains.DEFINITION}"}


def test_the_switch_and_the_pods_of_the_job_are_as_the_page_states() -> None:
    assert config.parse(yaml.safe_dump(SWITCH)).network == Network(auto_mnnvl_enabled=True)
    pods = JOB["spec"]["template"]
    assert GPURequests(Network()).any(msgspec.convert(pods["spec"], PodSpec))
    assert pods["metadata"]["labels"] == {"gkm.io/compute-domain": "nccl"}


def test_the_limit_is_that_of_the_page() -> None:
    assert f"at most {MAX_DOMAINS:,} ComputeDomains" in PAGE
