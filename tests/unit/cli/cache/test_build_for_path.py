"""`gkm cache build --for-path`: the files that name paths name PATH in the image, and the label states it."""

import ast
import json
import tarfile
from pathlib import Path

from support.cli.command import gkm
from support.images.directories import KEY, OTHER_KEY, RANK, component, kernel

IMAGE = ("--image", "registry.example/team/caches/llama:1")
PATH = "/var/cache/gkm/llama"


def built(directory: Path, *words: str | Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the labels of the image of these words, and its files."""
    directory.mkdir(exist_ok=True)
    made = directory / "made"
    done = gkm("cache", "build", *words, *IMAGE, "--to", f"oci:{made}", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (layer,) = found["layers"]
    with tarfile.open(made / "blobs" / layer["digest"].replace(":", "/")) as archive:
        files = {each.name: archive.extractfile(each) for each in archive if each.isfile()}
        return found["labels"], {name: file.read() for name, file in files.items() if file}


def test_the_group_of_a_kernel_names_the_path(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    before = {path: path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    labels, files = built(tmp_path, tmp_path / "cache", "--for-path", PATH)
    group = json.loads(files[f"io.triton.cache/{KEY}/__grp__fwd.json"])
    assert group == {"child_paths": {f"fwd.{end}": f"{PATH}/{KEY}/fwd.{end}" for end in ("json", "cubin")}}
    assert labels["gkm.io/mount-path"] == PATH
    content = {name: data for name, data in files.items() if name.startswith("io.triton.cache/")}
    assert labels["cache.triton.image/cache-size-bytes"] == str(sum(map(len, content.values())))
    assert {path: path.read_bytes() for path in before} == before


def test_every_other_file_is_as_without_a_path(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    _, plain = built(tmp_path / "one", tmp_path / "cache")
    _, moved = built(tmp_path / "two", tmp_path / "cache", "--for-path", PATH)
    assert {name for name in plain if plain[name] != moved[name]} == {f"io.triton.cache/{KEY}/__grp__fwd.json"}
    assert plain.keys() == moved.keys()


def test_each_of_several_caches_names_the_directory_of_its_runtime(tmp_path: Path) -> None:
    component(tmp_path / "root/vllm")
    kernel(tmp_path / "root/triton")
    labels, files = built(tmp_path, tmp_path / "root", "--for-path", PATH)
    group = json.loads(files[f"io.triton.cache/{KEY}/__grp__fwd.json"])
    assert group["child_paths"]["fwd.cubin"] == f"{PATH}/triton/{KEY}/fwd.cubin"
    index = ast.literal_eval(files[f"io.vllm.cache/{RANK}/backbone/vllm_compile_cache.py"].decode())
    ((_, graph),) = index.values()
    assert graph.startswith(f"{PATH}/vllm/{RANK}/backbone/artifact_")
    assert labels["gkm.io/mount-path"] == PATH


def test_a_damaged_kernel_stays_out_as_without_a_path(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    kernel(tmp_path / "cache", key=OTHER_KEY)
    (tmp_path / "cache" / OTHER_KEY / "fwd.cubin").unlink()
    _, files = built(tmp_path, tmp_path / "cache", "--for-path", PATH)
    assert not any(OTHER_KEY in name for name in files)


def test_an_image_without_a_path_states_none(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    labels, _ = built(tmp_path, tmp_path / "cache")
    assert "gkm.io/mount-path" not in labels


def test_a_path_at_which_no_container_can_mount_is_refused(tmp_path: Path) -> None:
    kernel(tmp_path / "cache")
    for path, reason in {"cache": "is not an absolute path", "/a/../b": "is not in its shortest form"}.items():
        done = gkm("cache", "build", tmp_path / "cache", *IMAGE, "--to", f"oci:{tmp_path / 'x'}", "--for-path", path)
        assert (done.returncode, reason in done.stderr) == (2, True)
        assert "name the path where containers see the cache" in done.stderr
        assert not (tmp_path / "x").exists()
