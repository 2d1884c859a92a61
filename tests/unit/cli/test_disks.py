"""A destination is checked before the work; an error of a full disk names the disk, the needed bytes and a remedy."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command import CACHE, gkm
from support.host.waiting import scaled
from support.peers import require
from support.registry.server import Registry


def test_the_destination_is_checked_before_packing(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    broken = tmp_path / "link"
    broken.symlink_to("/nowhere")
    # What cannot be packed is not reached: the directory is no cache.
    build = ["cache", "build", tmp_path, "--image", "x.example/a:1"]
    for to, words in (
        (f"oci:{tmp_path}/mine", f"{tmp_path}/mine: it exists already; remove it"),
        (f"docker-archive:{broken}", "exists already"),
        (f"oci:{tmp_path}/no/where", f"there is no directory {tmp_path}/no; create it"),
    ):
        done = gkm(*build, "--to", to)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr


def test_an_image_without_a_destination_is_not_built() -> None:
    done = gkm("cache", "build", CACHE, "--image", "x.example/a:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--push" in done.stderr
    assert "--to" in done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache of 4 MiB that cannot be compressed."""
    cache = tmp_path_factory.mktemp("large") / "cache"
    subprocess.run(["cp", "-r", CACHE, cache], check=True)
    (next(cache.iterdir()) / "more.source").write_bytes(secrets.token_bytes(4 << 20))
    return cache


def on_small_disk(disk: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command where `disk` is a file system of 1 MiB, in a mount namespace of its own."""
    require.root()
    disk.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "gkm_cli.main", *map(str, arguments)]
    script = 'mount -t tmpfs -o size=1m gkm-test "$0" && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, disk, *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=scaled(120),
        check=False,
    )


def names_disk_and_remedy(done: subprocess.CompletedProcess[str], disk: Path, remedy: str) -> bool:
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    found = re.search(
        rf"the disk of {disk}\S* is full: up to (\d+) bytes are needed, (\d+) were free; (.*)", done.stderr
    )
    assert found is not None, done.stderr
    return int(found[1]) > 4 << 20 > int(found[2]) > 0 and remedy in found[3]


@pytest.mark.mounts
def test_packing_on_a_full_disk(large: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    build = ["cache", "build", large, "--image", "x.example/a:1", "--to", f"oci:{tmp_path}/out"]
    assert names_disk_and_remedy(on_small_disk(disk, *build, TMPDIR=str(disk)), disk, "set TMPDIR")


@pytest.mark.mounts
@pytest.mark.parametrize("form", ["oci", "docker-archive"])
def test_writing_to_a_full_disk(large: Path, tmp_path: Path, form: str) -> None:
    disk = tmp_path / "disk"
    build = ["cache", "build", large, "--image", "x.example/a:1", "--to", f"{form}:{disk}/out"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    assert names_disk_and_remedy(on_small_disk(disk, *build, TMPDIR=str(temporary)), disk, "name a directory")


@pytest.mark.mounts
def test_extracting_on_a_full_disk_is_not_tried_again(large: Path, registry_server: Registry, tmp_path: Path) -> None:
    ref = f"{registry_server.host}/team/large:1"
    assert gkm("cache", "build", large, "--image", ref, "--push").returncode == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: off\n")
    disk = tmp_path / "disk"
    done = on_small_disk(disk, "cache", "extract", ref, "--to", disk / "out", "--policy", policy)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert re.search(rf"needs \d+ bytes on the disk of {disk}\S*, \d+ are free; free space, and run", done.stderr)
    assert "tried again" not in done.stderr


def test_a_full_device_behind_standard_output_is_a_sentence() -> None:
    command = [sys.executable, "-m", "gkm_cli.main", "node", "detect"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: standard output")
    assert "No space left on device" in done.stderr


def test_a_closed_pipe_causes_no_error(image: str) -> None:
    command = f"{sys.executable} -m gkm_cli.main cache inspect {image} -o json | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    assert done.returncode in (0, 1)  # whether the reader is gone before the writer writes
    assert done.stderr == ""
