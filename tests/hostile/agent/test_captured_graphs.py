"""A hostile pod leaves graphs of torch: no pickle is loaded, no code runs, and other pods' graphs stay as they are."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.api.errors import Reason
from gkm_agent.capturing import progress
from support.agent.capturing import CaptureNode, write_key
from support.agent.generations import FamilyNode
from support.images.inductor import CODE, GRAPH, artifact_file, compiled, graph
from support.images.vllm import properties, put
from support.registry.server import Registry

KEY = f"fxgraph/{GRAPH[1:3]}/{GRAPH}"


class Bomb:
    """A pickle that makes a directory when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self._path,)


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> FamilyNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return FamilyNode(made)


def left(node: FamilyNode, volume: str, bomb: bytes = b"") -> Path:
    return compiled(node.node.capture(volume, family="llama", kernels=()), volume, pickle=bomb)


def paths(node: FamilyNode, volume: str) -> set[str]:
    return {file.path for file in progress.load_files(node.node.layout.captured / volume)}


def test_no_pickle_is_loaded_and_no_program_beside_the_graphs_leaves_the_node(
    node: FamilyNode, registry: Registry, tmp_path: Path
) -> None:
    loaded = tmp_path / "loaded"
    bomb = pickle.dumps(Bomb(loaded))
    content = left(node, "csi-1", bomb)
    honest = {str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()} - {f"locks/{CODE}.lock"}
    marker = b"a program beside the graphs"
    put(content, "model.artifacts", artifact_file({"inductor": [("fone", bomb + marker)]}))
    for name in ("sitecustomize.py", "torch/__init__.py", f"ps/{CODE}.so", f"{KEY}/.pth", f"ps/{'x' * 200}.py"):
        put(content, name, b"\x7fELF" + marker)

    assert node.report("csi-1").state == "Announced"

    assert paths(node, "csi-1") == honest
    assert not loaded.exists()
    stored = [blob for each in registry.store.repositories.values() for blob in each.blobs.values()]
    assert stored
    assert not any(marker in blob for blob in stored)
    pickle.loads(bomb)  # noqa: S301 -- shows that loading would have left a mark
    assert loaded.exists()


def test_a_graph_under_a_key_of_the_generation_reaches_no_other_pod(node: FamilyNode, tmp_path: Path) -> None:
    left(node, "csi-1")
    node.choose(node.report("csi-1"))
    genuine = paths(node, "csi-1")
    content = left(node, "csi-2", pickle.dumps(Bomb(tmp_path / "loaded")))
    # Torch would look at this one first.
    put(content, f"{KEY}/{'0' * 64}", pickle.dumps(Bomb(tmp_path / "loaded")))
    added = f"ab/cab{'x' * 49}.py"
    put(content, added, b"x = 1\n")
    report = node.report("csi-2")
    assert report.state == "Announced", report.message
    assert paths(node, "csi-2") == genuine | {added}


def link(content: Path) -> None:
    (content / KEY / "link").symlink_to("/etc/passwd")


def link_in_place_of_a_key(content: Path) -> None:
    (content / "aotautograd" / ("a" * 52)).symlink_to("/")


def pipe(content: Path) -> None:
    os.mkfifo(content / KEY / "pipe")


def other_gpu(content: Path) -> None:
    put(content, f"{KEY}/other", graph("80"))


def two_gpus(content: Path) -> None:
    put(content, f"{KEY}/other", properties("90") + properties("80"))


def other_backend(content: Path) -> None:
    put(content, f"{KEY}/other", properties("'gfx942'", "hip"))


def group_outside(content: Path) -> None:
    (group,) = content.glob("triton/0/*/__grp__*.json")
    group.write_text(json.dumps({"child_paths": {"add.ptx": "/etc/passwd"}}))


@pytest.mark.parametrize(
    ("hostile", "reasons"),
    [
        (link, {Reason.UNSAFE_CONTENT}),
        (link_in_place_of_a_key, {Reason.UNSAFE_CONTENT}),
        (pipe, {Reason.UNSAFE_CONTENT}),
        (group_outside, {Reason.UNSAFE_CONTENT}),
        (other_gpu, {Reason.METADATA_INVALID, Reason.ARCHITECTURE_MISMATCH}),
        (two_gpus, {Reason.METADATA_INVALID, Reason.ARCHITECTURE_MISMATCH}),
        (other_backend, {Reason.METADATA_INVALID, Reason.BACKEND_MISMATCH}),
    ],
)
@pytest.mark.parametrize("place", ["", "inductor"])
def test_nothing_leaves_the_node_and_the_reason_is_recorded(
    node: FamilyNode, registry: Registry, hostile: Callable[[Path], None], reasons: set[Reason], place: str
) -> None:
    content = compiled(node.node.capture("csi-1", family="llama", kernels=()) / place, "1 s")
    hostile(content)
    report = node.report("csi-1")
    assert report.state == "Refused"
    assert report.reason in reasons
    assert report.message.isprintable()
    assert not registry.requests
