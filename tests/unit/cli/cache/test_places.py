"""References to layouts and archives in every command, and `gkm cache copy`, `diff`, `tags` and `delete`."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.images.signing import keys
from support.cli.command import CACHE, content, gkm
from support.images.signers import private_key
from support.registry import faults
from support.registry.server import Registry
from support.registry.store import Repository

PASSWORD = {"COSIGN_PASSWORD": "of the test"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A private and a public key."""
    directory, key = tmp_path_factory.mktemp("pair"), private_key()
    (directory / "t.key").write_bytes(keys.encrypted(key, PASSWORD["COSIGN_PASSWORD"].encode(), 1 << 10))
    (directory / "t.pub").write_bytes(key.public.pem)
    return directory / "t.key", directory / "t.pub"


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout that `gkm cache build` wrote. Shared: copy it."""
    directory = tmp_path_factory.mktemp("built") / "layout"
    built(f"oci:{directory}")
    return directory


@pytest.fixture
def layout(built_once: Path, tmp_path: Path) -> str:
    return f"oci:{shutil.copytree(built_once, tmp_path / 'layout')}"


def built(to: str, *options: str) -> str:
    done = gkm("cache", "build", CACHE, "--image", "x.example/team/llama:1", "--to", to, *options)
    assert done.returncode == 0, done.stderr
    assert f"written to {to}" in done.stdout
    return to


def sign(ref: str, key: Path) -> None:
    done = gkm("cache", "sign", ref, "--key", key, env=os.environ | PASSWORD)
    assert done.returncode == 0, done.stderr


def digest_of(ref: str) -> str:
    return str(json.loads(gkm("cache", "inspect", ref, "-o", "json").stdout)["digest"])


def test_every_command_takes_the_layout_that_build_wrote(layout: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    key, public = pair
    sign(layout, key)
    for ref in (layout, f"{layout}:1", f"{layout}@{digest_of(layout)}"):
        done = gkm("cache", "verify", ref, "--key", public)
        assert (done.returncode, done.stdout.count("signed by a trusted key")) == (0, 2), done.stderr
    assert gkm("cache", "check", layout, "--gpu", "h100").returncode == 0
    extracted = gkm("cache", "extract", layout, "--key", public, "--to", tmp_path / "out")
    assert extracted.returncode == 0, extracted.stderr
    assert content(tmp_path / "out") == content(CACHE)
    listed = json.loads(gkm("cache", "inspect", layout, "--entries", "-o", "json").stdout)
    assert listed["files"] == len(content(CACHE))


def test_a_layout_takes_a_tag_of_its_own_and_refuses_another(tmp_path: Path) -> None:
    to = built(f"oci:{tmp_path}/layout:mine")
    assert gkm("cache", "tags", f"oci:{tmp_path}/layout").stdout == "mine\n"
    assert digest_of(to)
    other = gkm("cache", "inspect", f"oci:{tmp_path}/layout:yours")
    assert (other.returncode, "list the tags: gkm cache tags" in other.stderr) == (1, True)


def test_an_archive_is_read_and_says_that_it_has_no_signature(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    ref, (key, public) = built(f"docker-archive:{tmp_path}/image.tar"), pair
    assert digest_of(ref) == digest_of(f"{ref}:x.example/team/llama:1")
    verified = gkm("cache", "verify", ref, "--key", public)
    assert (verified.returncode, "has no place for a signature" in verified.stdout) == (3, True)
    signed = gkm("cache", "sign", ref, "--key", key)
    assert (signed.returncode, "GKM only reads images of a docker-archive" in signed.stderr) == (2, True)
    missing = gkm("cache", "inspect", f"{ref}:other:1")
    assert (missing.returncode, "name one of 'x.example/team/llama:1'" in missing.stderr) == (1, True)


@pytest.mark.parametrize("ref", ["oci:", "docker-archive:", "oci:a:b c"])
def test_what_is_no_reference_is_a_usage_error(ref: str) -> None:
    done = gkm("cache", "inspect", ref)
    assert (done.returncode, "is not a reference to a layout or an archive" in done.stderr) == (2, True)


def test_a_copy_takes_the_signatures_along_and_can_be_repeated(
    registry_server: Registry, layout: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    key, public = pair
    sign(layout, key)
    there, back = f"{registry_server.host}/team/llama:1", f"oci:{tmp_path}/back:1"
    for source, target in ((layout, there), (there, back), (there, back)):
        done = gkm("cache", "copy", source, target, "-o", "json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["digest"], len(result["attached"])) == (digest_of(layout), 2)
        assert gkm("cache", "verify", target, "--key", public).returncode == 0


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("docker-archive:{tmp}/x", "GKM only reads images of a docker-archive"),
        ("oci:{tmp}/x@sha256:" + "0" * 64, "name a tag of the copy"),
    ],
)
def test_a_copy_needs_a_place_that_takes_it(layout: str, tmp_path: Path, target: str, says: str) -> None:
    done = gkm("cache", "copy", layout, target.format(tmp=tmp_path))
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_the_tags_of_an_archive_are_refused_for_a_true_reason(tmp_path: Path) -> None:
    done = gkm("cache", "tags", f"docker-archive:{tmp_path}/x")
    assert (done.returncode, "GKM only reads images of a docker-archive" in done.stderr) == (2, True), done.stderr
    assert "cannot be changed" not in done.stderr, "the command changes no archive"


def test_tags_are_listed_page_by_page_up_to_a_limit(registry_server: Registry, image: str) -> None:
    name = image.partition("@")[0]
    own = registry_server.store.repository("team/vector-add")
    own.tags |= {f"t{number:04}": image.partition("@")[2] for number in range(2500)}
    assert len(gkm("cache", "tags", name).stdout.splitlines()) == 2501
    assert len(registry_server.seen("GET", "/v2/team/vector-add/tags/list")) == 3
    own.tags |= {f"t{number:05}": image.partition("@")[2] for number in range(12_000)}
    *_, last = gkm("cache", "tags", name, "--limit", "12000").stdout.splitlines()
    given = last.rpartition("… and more: list them with ")[2].split()
    assert gkm("cache", "tags", name, *given).returncode == 0, f"the printed option does not run: {given}"
    own.tags = {tag: digest for tag, digest in own.tags.items() if len(tag) < len("t00000")}
    some = json.loads(gkm("cache", "tags", name, "--limit", "2", "-o", "json").stdout)
    assert some == {"repository": name, "tags": ["1", "t0000"], "more": True}
    assert gkm("cache", "tags", f"{registry_server.host}/team/nothing").stdout == ""


def test_one_image_is_the_same_in_two_places(registry_server: Registry, layout: str) -> None:
    ref = f"{registry_server.host}/team/llama:1"
    assert gkm("cache", "push", layout, ref).returncode == 0
    done = gkm("cache", "diff", ref, layout)
    assert (done.returncode, done.stdout) == (0, "the same image\n")


def test_a_difference_is_shown_by_name(layout: str, tmp_path: Path) -> None:
    other = tmp_path / "cache"
    for path, data in content(CACHE).items():
        (other / path).parent.mkdir(parents=True, exist_ok=True)
        (other / path).write_bytes(data)
    group = next(path for path in other.rglob("*.json") if not path.name.startswith("__grp__"))
    group.write_bytes(group.read_bytes() + b"\n")
    to = f"oci:{tmp_path}/other"
    version = ["--dependency-version", "triton=3.5.1"]
    made = gkm("cache", "build", other, "--image", "x.example/team/llama:1", "--to", to, *version)
    assert made.returncode == 0, made.stderr
    done = gkm("cache", "diff", layout, to, "-o", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["same"]) == (1, False)
    assert [(each["name"], each["change"]) for each in result["files"]] == [(str(group.relative_to(other)), "changed")]
    changed = {each["name"]: each["change"] for each in result["facts"]}
    assert (changed["digest"], changed["label gkm.io/dependency-version.triton"]) == ("changed", "added")
    assert "target cuda:90:32" not in changed


def test_a_diff_without_an_answer_has_another_exit_code(layout: str, tmp_path: Path) -> None:
    done = gkm("cache", "diff", layout, f"oci:{tmp_path}/nothing")
    assert (done.returncode, "there is no such directory" in done.stderr) == (2, True)
    done = gkm("cache", "diff", layout, layout, "--config", tmp_path / "nothing.yaml")
    assert (done.returncode, "nothing.yaml" in done.stderr) == (2, True), "1 says that the images differ"


@pytest.fixture(scope="module")
def stored_once(built_once: Path, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository of a signed image with the tag 1. Shared: copy it."""
    layout = f"oci:{shutil.copytree(built_once, tmp_path_factory.mktemp('stored') / 'layout')}"
    sign(layout, pair[0])
    with Registry.start() as registry:
        assert gkm("cache", "copy", layout, f"{registry.host}/team/llama:1").returncode == 0
        return registry.store.repository("team/llama")


@pytest.fixture
def stored(registry_server: Registry, stored_once: Repository) -> str:
    """A signed image in the registry of this test, by its tag."""
    own = registry_server.store.repository("team/llama")
    own.blobs.update(stored_once.blobs)
    own.manifests.update(stored_once.manifests)
    own.tags.update(stored_once.tags)
    return f"{registry_server.host}/team/llama:1"


def pinned(ref: str) -> str:
    return f"{ref.rpartition(':')[0]}@{digest_of(ref)}"


def test_deleting_a_tag_keeps_the_image_and_says_so(stored: str) -> None:
    digest = pinned(stored)
    done = gkm("cache", "delete", stored, "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [f"{stored} deleted", f"the image stays as {digest}"]
    assert "2 artifacts attached" in done.stdout.splitlines()[2]
    assert gkm("cache", "inspect", digest).returncode == 0


def test_deleting_a_digest_takes_its_tags_along_and_keeps_its_signatures(stored: str) -> None:
    digest = pinned(stored)
    result = json.loads(gkm("cache", "delete", digest, "--yes", "-o", "json").stdout)
    assert (result["tags"], result["signatures"], len(result["stays"])) == (["1"], [], 2)
    gone = gkm("cache", "inspect", stored)
    assert (gone.returncode, "does not exist in its registry" in gone.stderr) == (1, True)


@pytest.mark.parametrize("referrers", [True, False])
def test_signatures_are_deleted_with_the_image(stored: str, registry_server: Registry, referrers: bool) -> None:  # noqa: FBT001 -- pytest
    registry_server.routes.with_referrers = referrers
    digest = pinned(stored)
    result = json.loads(gkm("cache", "delete", digest, "--yes", "--with-signatures", "-o", "json").stdout)
    assert result["stays"] == []
    assert len(result["signatures"]) == (2 if referrers else 1)
    assert gkm("cache", "tags", stored.rpartition(":")[0]).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (lambda ref: [ref], "add --yes"),
        (lambda ref: [ref.rpartition(":")[0], "--yes"], "names no tag and no digest"),
        (lambda ref: [ref, "--yes", "--with-signatures"], "--with-signatures is for a digest"),
        (lambda _: ["oci:x", "--yes"], "is on this machine"),
    ],
)
def test_a_deletion_that_may_be_a_mistake_is_refused(
    stored: str, arguments: Callable[[str], list[str]], says: str
) -> None:
    done = gkm("cache", "delete", *arguments(stored))
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert gkm("cache", "inspect", stored).returncode == 0


@pytest.mark.parametrize("status", [400, 405])
def test_a_registry_that_refuses_to_delete_is_told_of(stored: str, registry_server: Registry, status: int) -> None:
    digest = pinned(stored)
    registry_server.misbehave(replace(faults.status("manifests/", status), methods=frozenset({"DELETE"})))
    by_tag, by_digest = (gkm("cache", "delete", ref, "--yes") for ref in (stored, digest))
    assert (by_tag.returncode, f"answers {status}" in by_tag.stderr) == (1, True)
    assert "name the digest" in by_tag.stderr
    assert (by_digest.returncode, "allow deletion in the registry's configuration" in by_digest.stderr) == (1, True)
