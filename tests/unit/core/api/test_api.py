import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from gkm.api import config
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache, verified_digest
from gkm.api.config import Config, ConfigInvalid
from gkm.api.meta import Condition, ObjectMeta, with_condition

ROOT = Path(__file__).parents[4]
DIGEST = "sha256:" + "a" * 64


def condition(status: str, at: str, kind: str = "Verified") -> Condition:
    return Condition(kind, status, "Because", "it is so", at)


def test_generated_files_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_condition_retains_its_transition_time_while_its_status_is_the_same() -> None:
    first = with_condition([condition("True", "1", "Ready")], condition("False", "2"))
    assert with_condition(first, condition("False", "3")) == [condition("True", "1", "Ready"), condition("False", "2")]
    assert with_condition(first, condition("True", "3"))[1].last_transition_time == "3"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (CacheStatus(image="a", resolved_digest=DIGEST, conditions=[condition("True", "1")]), DIGEST),
        (CacheStatus(image="b", resolved_digest=DIGEST, conditions=[condition("True", "1")]), None),
        (CacheStatus(image="a", resolved_digest=DIGEST, conditions=[condition("False", "1")]), None),
        (CacheStatus(image="a", resolved_digest=DIGEST, conditions=[condition("Unknown", "1")]), None),
        (CacheStatus(image="a", resolved_digest=DIGEST), None),
        (CacheStatus(), None),
    ],
)
def test_only_a_digest_that_is_verified_for_this_image_can_be_pulled(status: CacheStatus, expected: str | None) -> None:
    assert verified_digest(GKMCache(ObjectMeta("llama", "ml-apps"), CacheSpec("a"), status)) == expected


def test_objects_are_written_with_the_names_of_the_api() -> None:
    cache = GKMCache(ObjectMeta("llama", "ml-apps"), CacheSpec("registry.example/llama:1"))
    assert msgspec.to_builtins(cache) == {
        "kind": "GKMCache",
        "apiVersion": "gkm.io/v1alpha1",
        "metadata": {"name": "llama", "namespace": "ml-apps"},
        "spec": {"image": "registry.example/llama:1", "updatePolicy": {}},
        "status": {},
    }


@pytest.mark.parametrize(
    ("name", "good"),
    [("pull", True), ("team.pull-1", True), (".", False), ("..", False), ("a..b", False), ("a/b", False), ("A", False)],
)
def test_a_pull_secret_has_a_name_that_a_secret_can_have(name: str, good: bool) -> None:  # noqa: FBT001 -- a column
    spec = {"image": "registry.example/llama:1", "imagePullSecrets": [{"name": name}]}
    with nullcontext() if good else pytest.raises(msgspec.ValidationError):
        msgspec.convert(spec, CacheSpec)


def test_no_configuration_is_the_strict_default() -> None:
    assert config.parse("") == Config()
    assert config.parse("{}").verification.mode == "enforce"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("verifikation: {}", "verifikation"),
        ("verification: {mode: maybe}", "$.verification.mode"),
        ("verification: {policies: [{keys: []}]}", "$.verification.policies[0]"),
        ("verification: {policies: [{keys: [a], image: ['*']}]}", "image"),
        ("registries: {hosts: {r.example: {plainHttp: true}}}", "plainHttp"),
        ("store: {maxImageBytes: 0}", "$.store.maxImageBytes"),
        ("- a", "Expected `object`"),
        ("a: [", "not YAML"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_path_of_the_mistake(text: str, path: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(text)
    assert path in str(caught.value)


@pytest.mark.parametrize("text", ["verification: {mode: off}", "verification:\n  mode: 'off'\n"])
def test_off_is_a_string_without_quotes_too(text: str) -> None:
    assert config.parse(text).verification.mode == "off"


def test_a_namespace_can_have_the_name_no() -> None:
    found = config.parse("verification: {policies: [{keys: [k], namespaces: [no, yes, on]}]}")
    assert found.verification.policies[0].namespaces == ["no", "yes", "on"]


def test_true_is_still_true() -> None:
    assert config.parse("registries: {hosts: {a.example: {plainHTTP: true}}}").registries.hosts["a.example"].plain_http
