"""Targets for what vLLM leaves on a disk, and for the files that state a GPU in its place."""

import json
import random
import re
import tempfile
from pathlib import Path

from fuzz_mutators import Blind, Mutator
from gkm.api.targets import GpuTarget
from gkm.images.assembly import factors_file
from gkm.images.assembly.compiled_targets import CompiledTargets
from gkm.images.assembly.contents import scan_directory
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import is_valid_target
from gkm.runtimes import vllm
from gkm_cli.cache import machines
from gkm_cli.output import UsageError

MEMORY = Path("/dev/shm")
_MARKS = (
    *(b".target sm_%s\n" % arch for arch in (b"75", b"90a", b"100", b"7", b"1000", b"120f")),
    *(b" cc=%s," % arch for arch in (b"75", b"'gfx90a'", b"7.5", b"755", b"8")),
    *(b"amdgcn-amd-amdhsa--gfx%s:" % arch for arch in (b"90a", b"942", b"1100", b"9", b"90A")),
    b"['gfx90a', 'gfx942']",
    b'"arch": "gfx1201"',
    b"." * 64,
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_PREFIX = "torch_compile_cache/0a1b2c3d4e/rank_0_0/backbone"


def artifact(data: bytes) -> None:
    """What is found does not depend on where the file is cut, and stands in the file."""
    whole = _scanned(data, max(1, len(data)))
    for size in (7, 63, 64, 257):
        cut = _scanned(data, size)
        assert cut == whole or (len(cut) > 1 < len(whole)), (size, cut, whole)
    for target in whole:
        assert is_valid_target(target)
        names = (b".target sm_", b"cc=") if target.backend == "cuda" else (b"",)
        assert any(name + target.arch.encode() in data for name in names), target


def _scanned(data: bytes, size: int) -> set[GpuTarget]:
    found = CompiledTargets()
    found.scan("artifact", (data[at : at + size] for at in range(0, len(data), size)))
    assert len(found.named_in) <= 2
    return set(found.named_in)


def factors(data: bytes) -> None:
    """No secret that is set comes into manifest.json or into the file that is packed."""
    redacted = factors_file.without_secrets(data)
    if redacted:
        assert redacted.names or redacted.data == b"{}"
        assert factors_file.without_secrets(redacted.data) is None
    vllm.key_of(data)
    for name, value in vllm.environment_of(data).items():
        assert isinstance(value, bool | int | float) or not _SECRET.search(name), name
    with tempfile.TemporaryDirectory(prefix="gkm-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as root:
        prefix = Path(root) / _PREFIX
        prefix.mkdir(parents=True)
        (prefix / "cache_key_factors.json").write_bytes(data)
        (prefix / "artifact_compile_range_1_2_subgraph_0").write_bytes(b".target sm_75\n")
        (prefix / "vllm_compile_cache.py").write_bytes(b"{}")
        found = scan_directory(Path(root), (), DependencyVersions())
    for entry in json.loads(found.manifest)["vllm"]:
        for binary in entry["binary"]:
            _check_public(binary.get("env"))
    (target,) = json.loads(found.labels["cache.vllm.image/summary"])["targets"]
    assert (target["backend"], target["arch"], target["warp_size"]) == ("cuda", "sm_75", 32)


def _check_public(value: object) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            assert item is None or not _SECRET.search(name), name
            _check_public(item)
    elif isinstance(value, list):
        for item in value:
            _check_public(item)


def gpu_file(data: bytes) -> None:
    """A file lists machines, of which each is named once, or the error is one line; it never is an empty answer."""
    try:
        found = machines.parse(data, "file")
    except UsageError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 1000
        return
    assert found
    assert len({node.name for node in found}) == len(found)
    for node in found:
        assert len(node.gpus) <= 1024
        assert all(gpu.backend for gpu in node.gpus)


def of_marks(change: Blind) -> Mutator:
    """Return what puts whole and broken marks into an artifact, and cuts some."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return change(data, most)
        at = chance.randint(0, len(data))
        mark = chance.choice(_MARKS)
        mark = mark[chance.randint(0, 2) : len(mark) - chance.randint(0, 2)]
        return (data[:at] + mark + data[at + chance.choice((0, 0, 10, 400)) :])[:most]

    return mutate
