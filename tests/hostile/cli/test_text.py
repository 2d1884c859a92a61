"""Labels of an image reach a terminal as escaped text, in every output format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.command import gkm
from support.images.archives import image_of_layers, tree
from support.registry.push import Target
from support.registry.server import Registry

COMMANDS = "\x1b]0;owned\x07\x1b[2J\x7f\x9b31m\x85\u202egnp.exe\u2066\U000e0041"
KERNEL = {"hash": COMMANDS, "backend": "cuda" + COMMANDS, "arch": "90" + COMMANDS, "warp_size": 32}


@pytest.fixture
def hostile(registry_server: Registry) -> str:
    """Return an image that only a mean builder makes; the content is as it should be."""
    manifest = json.dumps({"triton": [KERNEL]}).encode()
    layer = tree(("io.triton.cache/K/a.cubin", b"x"), ("io.triton.manifest/manifest.json", manifest))
    summary = {"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]}
    labels = {
        "cache.triton.image/cache-size-bytes": "1",
        "cache.triton.image/entry-count": "1",
        "cache.triton.image/summary": json.dumps(summary),
        "org.opencontainers.image.title": COMMANDS,
    }
    image = image_of_layers(gzip.compress(layer), labels=labels)
    target = Target(registry_server.host, "team/mean")
    for blob in image.blobs:
        target.blob(b"".join(blob.pieces()))
    digest = target.manifest(image.manifest, media_type=image.media_type)["digest"]
    return f"{target}@{digest}"


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_a_table_of_entries_shows_commands_as_text(hostile: str) -> None:
    done = gkm("cache", "inspect", hostile, "--entries", "--plain-http")
    assert (done.returncode, done.stderr) == (0, "")
    assert printable(done.stdout), ascii(done.stdout)
    assert r"\x1b[2J" in "".join(done.stdout.split())


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_programs_get_the_value_as_it_is_in_printable_lines(
    hostile: str, form: str, read: Callable[[str], Any], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = gkm("cache", "inspect", hostile, "--entries", "--plain-http", "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert printable(done.stdout), ascii(done.stdout)
    assert read(done.stdout)["entries"][0]["hash"] == COMMANDS
    assert read(done.stdout)["labels"]["org.opencontainers.image.title"] == COMMANDS


def test_an_error_shows_commands_as_text(tmp_path: Path) -> None:
    done = gkm("cache", "inspect", "registry.example/x", "--config", tmp_path / f"a{COMMANDS}b")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert printable(done.stderr), ascii(done.stderr)


def test_a_file_name_that_is_not_text_is_printed(tmp_path: Path) -> None:
    done = gkm("cache", "inspect", "registry.example/x", "--config", tmp_path / "a\udcff\x1b[1mb")
    assert (done.returncode, r"a\udcff\x1b[1mb" in done.stderr) == (1, True)
