"""Hostile caches of TorchInductor, from the directory to the mount: pickles and code are content, bounds hold."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.gpus import preflight
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.assembly import contents, tree
from gkm.images.assembly.artifact_file import MAX_ARTIFACTS
from gkm.images.assembly.triton import MAX_METADATA_BYTES
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache_entries import entries_in
from gkm.images.pulling import extract, pull
from gkm.images.registries import push
from gkm.mounts.relocation.tree_writer import Unrelocatable
from support.agent.fakes import H100
from support.host.memory import traced_below
from support.images.builds import build
from support.images.cache_registry import Site
from support.images.inductor import GRAPH, KERNEL, artifact_file, directory, graph
from support.images.vllm import put
from support.triton.cache import relocated

MAX = 1 << 30
MAX_MEMORY = 48 << 20
"""Of Python objects while a hostile cache is scanned; the largest file here has twice as many bytes."""
GRAPH_FILE = f"fxgraph/{GRAPH[1:3]}/{GRAPH}/hostile"


class Canary:
    """A pickle that makes a directory when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self._path,)


def refusal(root: Path, work: Path) -> GKMError:
    work.mkdir()
    with traced_below(MAX_MEMORY), pytest.raises(GKMError) as caught:
        build(root, "model", work)
    assert not list(work.iterdir())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    return caught.value


def test_neither_pickle_nor_code_runs_from_build_to_mount(tmp_path: Path, site: Site, layout: Layout) -> None:
    loaded = tmp_path / "loaded"
    bomb = pickle.dumps(Canary(loaded))
    cache_directory = directory(tmp_path / "cache", graph() + bomb, mount="/etc")
    put(cache_directory, GRAPH_FILE, bomb)
    put(cache_directory, "model.artifacts", artifact_file({"inductor": [("fone", bomb)], "pgo": [("pone", bomb)]}))
    code = f"import os; os.mkdir({str(loaded)!r})\n".encode()
    for name in (f"ab/cab{'x' * 49}.py", "sitecustomize.py", "torch/__init__.py", "conftest.py"):
        put(cache_directory, name, code)
    (tmp_path / "work").mkdir()
    ref = site.ref.tagged("hostile")
    pinned = ref.pinned(push.image(site.client, ref, build(cache_directory, "model", tmp_path / "work")))
    image = cache.describe(site.client, pinned)
    assert preflight.check(image.targets, [H100]).fits
    entry = pull.fetch(site.client, image, layout, max_bytes=MAX)
    content = layout.entry(entry.digest) / "cache"
    assert (content / GRAPH_FILE).read_bytes() == bomb
    rewritten = relocated(content, Path("/models/cache"), tmp_path / "trees")
    group = json.loads((rewritten / "triton/0" / KERNEL / "__grp__add.json").read_text())
    assert all(path.startswith("/models/cache/triton/0/") for path in group["child_paths"].values())
    assert not loaded.exists()
    pickle.loads(bomb)  # noqa: S301 -- shows that loading would have left a mark
    assert loaded.exists()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../../../../etc/passwd", "add.json/../../../../x", "/proc/self/mem", "a\0b", "x" * 5000]
)
def test_a_group_that_names_a_file_outside_becomes_a_miss(tmp_path: Path, path: str) -> None:
    root = directory(tmp_path / "cache")
    put(root, f"triton/0/{KERNEL}/__grp__add.json", json.dumps({"child_paths": {path: path}}).encode())
    rewritten = relocated(root, Path("/models/cache"), tmp_path / "trees")
    assert json.loads((rewritten / "triton/0" / KERNEL / "__grp__add.json").read_text()) == {}


def link(root: Path) -> None:
    (root / "fxgraph" / "link").symlink_to("/etc/passwd")


def link_to_a_directory(root: Path) -> None:
    (root / "aotautograd" / "link").symlink_to("/")


def pipe(root: Path) -> None:
    os.mkfifo(root / "model.artifacts")


@pytest.mark.parametrize("hostile", [link, link_to_a_directory, pipe])
def test_links_and_pipes_are_refused_by_build_and_relocation(tmp_path: Path, hostile: Callable[[Path], None]) -> None:
    root = directory(tmp_path / "cache")
    hostile(root)
    assert refusal(root, tmp_path / "work").reason is Reason.UNSAFE_CONTENT
    with pytest.raises(Unrelocatable, match="is no file and no directory"):
        relocated(root, Path("/models/cache"), tmp_path / "trees")


@pytest.mark.parametrize("depth", [17, 300])
def test_deep_directories_are_refused_by_build_and_relocation(tmp_path: Path, depth: int) -> None:
    root = directory(tmp_path / "cache")
    put(root, f"fxgraph/{'d/' * depth}x", b"")
    assert refusal(root, tmp_path / "work").reason is Reason.UNSAFE_CONTENT
    with pytest.raises(Unrelocatable, match="too deep"):
        relocated(root, Path("/models/cache"), tmp_path / "trees")


def test_a_million_artifacts_are_refused_by_their_stated_number(tmp_path: Path) -> None:
    one = artifact_file({"inductor": [("key", b"")]})
    artifact = one[-20:]  # the length of its name, its name, the length of its content
    many = one[:-28] + (1_000_000).to_bytes(8) + artifact * 1_000_000
    error = refusal(put(tmp_path / "cache", "model.artifacts", many), tmp_path / "work")
    assert (error.reason, f"at most {MAX_ARTIFACTS}" in error.message) == (Reason.METADATA_INVALID, True)


def test_a_million_empty_groups_are_refused(tmp_path: Path) -> None:
    one = artifact_file({"inductor": []})
    root = put(tmp_path / "cache", "model.artifacts", one + one[12:] * 1_000_000)
    assert "groups" in refusal(root, tmp_path / "work").message


def test_more_files_than_a_node_extracts_are_refused_after_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = directory(tmp_path / "cache")
    for number in range(300):
        put(root, f"aotautograd/{number:0>52}/x", graph())
    assert extract.MAX_FILES < 1_000_000
    monkeypatch.setattr(tree, "MAX_FILES", 200)
    assert refusal(root, tmp_path / "work").reason is Reason.TOO_LARGE


def test_a_huge_description_of_entries_is_refused_before_an_image_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ((f"{number:0>700}", b"") for number in range(2_000))
    root = put(tmp_path / "cache", "model.artifacts", artifact_file({"inductor": keys}))
    put(root, GRAPH_FILE, graph())
    monkeypatch.setattr(contents, "MAX_MANIFEST_BYTES", 1 << 20)
    assert refusal(root, tmp_path / "work").reason is Reason.TOO_LARGE


@pytest.mark.parametrize("text", [b"[" * MAX_METADATA_BYTES, b'{"hash": "' + b"x" * (96 << 20) + b'"}', b"{" * 1000])
def test_huge_or_deep_json_beside_kernels_is_content(tmp_path: Path, text: bytes) -> None:
    root = directory(tmp_path / "cache")
    put(root, f"triton/0/{KERNEL}/huge.json", text)
    put(root, f"triton/0/{KERNEL}/__grp__huge.json", text)
    with traced_below(MAX_MEMORY):
        found = contents.scan_directory(root, (), DependencyVersions())
        rewritten = relocated(root, Path("/models/cache"), tmp_path / "trees")
    assert len(entries_in(found.manifest)) == 3
    assert json.loads((rewritten / "triton/0" / KERNEL / "__grp__huge.json").read_text()) == {}


@pytest.mark.parametrize(
    ("count", "entry", "reason", "why"),
    [
        (200_001, b"{}", Reason.METADATA_INVALID, "more than the 20798 objects"),
        (1_000_000, b"{}", Reason.METADATA_INVALID, "more than the 95798 objects"),
        (200_001, b'{"hash":"' + b"a" * 52 + b'"}', Reason.TOO_LARGE, "lists 200001 entries, at most 200000"),
    ],
    ids=["empty ones", "a million empty ones", "entries with a hash"],
)
def test_a_manifest_with_a_million_entries_is_refused_when_it_is_inspected(
    count: int, entry: bytes, reason: Reason, why: str
) -> None:
    manifest = b'{"inductor": [' + b",".join([entry] * count) + b"]}"
    with pytest.raises(GKMError, match=why) as caught:
        entries_in(manifest)
    assert caught.value.reason is reason
