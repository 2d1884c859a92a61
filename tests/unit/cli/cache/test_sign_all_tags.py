"""`gkm cache sign --all-tags`: all images of a repository by a new key; it skips what is signed and names failures."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from gkm.images.signing.keys import encrypted
from gkm_cli.cache import sign
from gkm_cli.output import CommandFailed
from support.cli.command import gkm
from support.images.signers import private_key
from support.registry.push import OCI_LAYER_GZIP, Target
from support.registry.server import Registry

NAME = "team/caches"
PASSWORD = {"COSIGN_PASSWORD": "of-a-test"}
MISSING = f"sha256:{'0' * 64}"
"""A digest that no manifest has."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two key pairs as `gkm keygen` writes them, whose password is as cheap to try as can be."""
    directory = tmp_path_factory.mktemp("keys")
    for prefix in ("old", "new"):
        key = private_key()
        (directory / f"{prefix}.key").write_bytes(encrypted(key, PASSWORD["COSIGN_PASSWORD"].encode(), scrypt_n=2))
        (directory / f"{prefix}.pub").write_bytes(key.public.pem)
    return directory


@pytest.fixture
def repository(registry_server: Registry) -> str:
    """A repository with three tags, of which two name the same image."""
    target = Target(registry_server.host, NAME)
    first = target.image([(b"first", OCI_LAYER_GZIP)], tag="1")
    target.image([(b"second", OCI_LAYER_GZIP)], tag="2")
    registry_server.store.repository(NAME).tags["latest"] = first
    return str(target)


def sign_all(repository: str, key: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("cache", "sign", repository, "--all-tags", "--key", key, "--plain-http", *more)
    return gkm(*words, env=os.environ | PASSWORD)


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {each["tag"]: each["state"] for each in json.loads(done.stdout)["tags"]}


def verifies(image: str, key: Path) -> bool:
    return gkm("cache", "verify", image, "--key", key, "--plain-http").returncode == 0


def test_every_image_has_a_signature_by_the_new_key_beside_the_old_one(repository: str, keys: Path) -> None:
    assert sign_all(repository, keys / "old.key").returncode == 0
    done = sign_all(repository, keys / "new.key")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{repository}:{tag}: signed" for tag in ("1", "2", "latest")]
    for tag in ("1", "2", "latest"):
        assert verifies(f"{repository}:{tag}", keys / "new.pub")
        assert verifies(f"{repository}:{tag}", keys / "old.pub")


def test_a_repeated_run_signs_only_what_is_new(registry_server: Registry, repository: str, keys: Path) -> None:
    assert states(sign_all(repository, keys / "new.key", "-o", "json")) == dict.fromkeys(("1", "2", "latest"), "signed")
    Target(registry_server.host, NAME).image([(b"third", OCI_LAYER_GZIP)], tag="3")
    before = dict(registry_server.store.repository(NAME).manifests)
    done = sign_all(repository, keys / "new.key", "-o", "json")
    again = dict.fromkeys(("1", "2", "latest"), "already signed")
    assert states(done) == again | {"3": "signed"}
    assert done.stderr.splitlines() == [f"{repository}:{tag}: {state}" for tag, state in states(done).items()]
    added = registry_server.store.repository(NAME).manifests.keys() - before.keys()
    assert len(added) == 2, "both forms of one signature"


def test_an_image_that_cannot_be_signed_is_named_and_the_others_are_signed(
    registry_server: Registry, repository: str, keys: Path
) -> None:
    registry_server.store.repository(NAME).tags["15"] = MISSING
    done = sign_all(repository, keys / "new.key", "-o", "json")
    assert done.returncode == 1
    assert states(done) == {"1": "signed", "15": "failed", "2": "signed", "latest": "signed"}
    assert done.stderr.splitlines()[-1] == (
        "error: 1 of 4 tags are not signed: 15; run the command again, which skips what is signed"
    )
    del registry_server.store.repository(NAME).tags["15"]
    assert sign_all(repository, keys / "new.key").returncode == 0


def test_after_three_failures_in_a_row_the_rest_is_left(registry_server: Registry, repository: str, keys: Path) -> None:
    tags = registry_server.store.repository(NAME).tags
    tags |= {"11": MISSING, "12": MISSING, "13": MISSING}
    done = sign_all(repository, keys / "new.key", "-o", "json")
    failed = dict.fromkeys(("11", "12", "13"), "failed")
    assert states(done) == {"1": "signed", "2": "not tried", "latest": "not tried"} | failed
    assert (done.returncode, "5 of 6 tags are not signed: 11, 12, 13, 2, latest" in done.stderr) == (1, True)


def test_more_tags_than_the_limit_sign_no_image(registry_server: Registry, repository: str, keys: Path) -> None:
    before = dict(registry_server.store.repository(NAME).manifests)
    done = sign_all(repository, keys / "new.key", "--limit", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("more than 2 tags of images; give --limit 20\n"), "it names no limit that is enough"
    assert registry_server.store.repository(NAME).manifests == before
    assert sign_all(repository, keys / "new.key", "--limit", "20").returncode == 0


def test_tags_of_signatures_do_not_count_in_the_limit(registry_server: Registry, repository: str, keys: Path) -> None:
    assert sign_all(repository, keys / "old.key").returncode == 0
    assert len(registry_server.store.repository(NAME).tags) > 3
    done = sign_all(repository, keys / "new.key", "--limit", "3", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert states(done) == {"1": "signed", "2": "signed", "latest": "signed"}


def test_tags_of_signatures_are_bounded_too() -> None:
    of_signatures = [f"sha256-{number:064x}.sig" for number in range(20)]
    assert sign.image_tags(["1", *of_signatures[:19]], 2) == ["1"]
    with pytest.raises(CommandFailed, match=r"more than 20 tags with those of signatures; give --limit 20$"):
        sign.image_tags(["1", *of_signatures], 2)


@pytest.mark.parametrize(
    ("limit", "step"),
    [(50_000, "give --limit 100000"), (100_000, "sign each image by its tag, without --all-tags")],
    ids=["the largest", "none is larger"],
)
def test_the_limit_of_the_next_step_is_one_that_the_command_accepts(limit: int, step: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        sign.image_tags([str(number) for number in range(limit + 1)], limit)
    assert str(refused.value).endswith(f"; {step}"), "the next step is refused: --limit is at most 100000"


def test_a_layout_is_signed_as_a_repository(repository: str, keys: Path, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    for tag in ("1", "2"):
        copied = gkm("cache", "copy", f"{repository}:{tag}", f"oci:{layout}:{tag}", "--plain-http")
        assert copied.returncode == 0, copied.stderr
    done = sign_all(f"oci:{layout}", keys / "new.key", "-o", "json")
    assert states(done) == {"1": "signed", "2": "signed"}
    assert verifies(f"oci:{layout}:2", keys / "new.pub")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("registry.example/team/a:1", "--key", "new.key"), "--all-tags is for a repository"),
        ((f"registry.example/team/a@{MISSING}", "--key", "new.key"), "--all-tags is for a repository"),
        (("registry.example/team/a",), "--all-tags needs --key"),
    ],
)
def test_wrong_usage_is_one_line(words: tuple[str, ...], why: str) -> None:
    done = gkm("cache", "sign", *words, "--all-tags")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {why}")
