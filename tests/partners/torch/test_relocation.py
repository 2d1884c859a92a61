"""Real TorchInductor's use of a cache at another path, by its own counters: facts of docs/reference/formats.md."""

import shutil
from pathlib import Path

import pytest
from gkm.api.errors import GKMError
from gkm.api.targets import GpuTarget
from gkm.images.assembly.contents import scan_directory
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import Format
from gkm.images.cache_entries import entries_in
from gkm.images.pulling.extract import Extraction
from gkm.runtimes import inductor
from gkm.runtimes.keys import MissReason, closest
from support.images.archives import content
from support.images.builds import build
from support.peers import require
from support.torch.cache import HIT, MISS, TorchFailed, compiled, counted
from support.triton.cache import relocated, snapshot

H100 = (GpuTarget("cuda", "90", 32),)
"""Torch compiled for the processor here, so that the cache names no GPU."""


def test_a_cache_at_another_path_is_a_hit_and_nothing_is_written(moved: Path) -> None:
    before = snapshot(moved)
    assert counted(compiled(moved)) == HIT
    assert snapshot(moved) == before


def test_a_model_that_the_cache_lacks_is_a_miss(moved: Path) -> None:
    before = set(snapshot(moved))
    assert counted(compiled(moved, "--rows", 17)) == MISS
    assert set(snapshot(moved)) > before


def test_only_debug_information_names_the_path_of_the_compilation(filled: Path) -> None:
    path = str(filled).encode()
    naming = {file.suffix for file in filled.rglob("*") if file.is_file() and path in file.read_bytes()}
    assert naming == {".so"}


def test_an_extracted_and_relocated_image_is_a_hit_with_the_same_results(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    image = build(filled, "model", tmp_path / "work", stated=H100)
    (tmp_path / "entry").mkdir()
    entry = Extraction(tmp_path / "entry", [Format.INDUCTOR], 1 << 30)
    entry.layer([content(image.blobs[1])])
    mount = tmp_path / "mount"
    shutil.copytree(entry.destination, mount)
    shutil.copytree(relocated(mount, mount, tmp_path / "trees"), mount, dirs_exist_ok=True)
    before = set(snapshot(mount))
    found = compiled(mount)
    assert counted(found) == HIT
    assert found.results == compiled(filled).results
    assert set(snapshot(mount)) == before


def test_the_manifest_lists_the_graphs_of_torch(filled: Path) -> None:
    contents = scan_directory(filled, H100, DependencyVersions())
    assert contents.format is Format.INDUCTOR
    listed = {(entry.form, entry.hash) for entry in entries_in(contents.manifest)}
    graphs = {("fxgraph", path.name) for path in filled.glob("fxgraph/*/*")}
    autograd = {("aotautograd", path.name) for path in filled.glob("aotautograd/*")}
    assert (len(graphs), len(autograd)) == (2, 1)
    assert listed == graphs | autograd


def test_the_graphs_of_torch_state_what_they_were_keyed_on(filled: Path) -> None:
    graphs = [path for path in filled.glob("fxgraph/*/*/*") if path.is_file()]
    keys = [inductor.key_of(path.read_bytes()[: inductor.MAX_GRAPH_BYTES]) for path in graphs]
    assert keys
    for key in keys:
        assert key is not None
        assert key["torch_version"].reason is MissReason.OTHER_VERSION
        assert key["gm"].reason is MissReason.OTHER_SOURCE
        assert {each.reason for each in key.values()} >= {MissReason.OTHER_OPTIONS}
        assert closest(key, [key]) == []


def test_torchs_graphs_for_a_processor_name_no_gpu(filled: Path) -> None:
    with pytest.raises(GKMError, match="does not say which GPU"):
        scan_directory(filled, (), DependencyVersions())


def test_a_file_of_artifacts_is_read_as_torch_wrote_it_and_hits_in_an_empty_cache(filled: Path, tmp_path: Path) -> None:
    saved = filled.with_name("model.artifacts")
    (tmp_path / "cache").mkdir()
    shutil.copy(saved, tmp_path / "cache")
    listed = entries_in(scan_directory(tmp_path / "cache", H100, DependencyVersions()).manifest)
    assert {(entry.form, entry.hash) for entry in listed} == {
        *(("inductor", path.name) for path in filled.glob("fxgraph/*/*")),
        *(("aot_autograd", path.name) for path in filled.glob("aotautograd/*")),
    }
    assert counted(compiled(tmp_path / "empty", "--load", saved)) == HIT


def test_a_read_only_mount_fails_at_a_lock_even_though_the_graphs_hit(moved: Path) -> None:
    require.root()
    mounted = f"mount --bind {moved} {moved} && mount -o remount,ro,bind {moved}"
    with pytest.raises(TorchFailed, match=r"Read-only file system: '.*/locks/"):
        compiled(moved, within=("unshare", "--mount", "sh", "-c", f'{mounted} && exec "$@"', "sh"))
