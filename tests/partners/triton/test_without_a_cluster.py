"""docs/how-to/without-a-cluster.md with real Triton: an agent without Kubernetes, and a mount of the store's entry."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.cli.command import KEY, gkm
from support.fakes import nvml_library
from support.peers import require
from support.registry.olareg import Olareg
from support.registry.push import Target
from support.sigstore.key_signatures import sign_bundle
from support.triton.cache import compiled

pytestmark = pytest.mark.mounts


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Olareg]:
    with require.absences(), Olareg.start(tmp_path / "olareg") as olareg:
        yield olareg


@pytest.fixture
def pointer(registry: Olareg, built: Path, tmp_path: Path) -> dict[str, str]:
    """Follow the page up to the mount; return the pointer of the cache, with the path of its content."""
    image = f"{registry.host}/team/llama:1"
    done = gkm("cache", "build", built, "--image", image, "--push", "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    sign_bundle(Target(registry.host, "team/llama"), json.loads(done.stdout)["digest"], KEY)
    cache = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"image": image},
    }
    config = {
        "verification": {"policies": [{"keys": [KEY.public_pem.decode()]}]},
        "registries": {"hosts": {registry.host: {"plainHTTP": True}}},
        "store": {"minFreePercent": 0},
    }
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "llama.yaml").write_text(yaml.safe_dump(cache))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    library = nvml_library.build()
    machine = nvml_library.environment(tmp_path, library=library, gpus=(nvml_library.H100,))
    state = tmp_path / "state"
    words = ["--static", "caches", "--status", "nodes", "--config", "config.yaml", "--once", "--node", "gpu-1"]
    subprocess.run(
        [sys.executable, "-m", "gkm_agent.main", *words, "--state", state, "--run", tmp_path / "run"],
        cwd=tmp_path,
        env={**os.environ, **machine},
        check=True,
        timeout=120,
    )
    node = yaml.load((tmp_path / "nodes" / "default" / "gpu-1.yaml").read_text(), yaml.CSafeLoader)
    assert node["status"]["caches"]["llama"]["state"] == "Ready"
    found = json.loads((state / "caches" / "default" / "llama" / "cache.json").read_text())
    return {**found, "content": str(state / "store" / "sha256" / found["digest"].removeprefix("sha256:") / "cache")}


def within(content: str, place: Path) -> list[str]:
    """Return what runs a program that sees the content at `place`, read-only, as a container with a volume."""
    script = 'mount --bind "$0" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, content, str(place)]


def test_a_program_reads_its_kernels_where_the_cache_was_built(pointer: dict[str, str], built: Path) -> None:
    assert pointer["state"] == "Ready"
    built.rename(built.with_name("original"))
    built.mkdir()
    found = compiled(built, within=within(pointer["content"], built))
    assert (found.hit, found.stages) == (True, [])
    assert all(Path(path).is_relative_to(built) for path in found.paths)
