"""Graphs of torch join a family once for each key: two pods never write the same file, and no pod adds to a key."""

from pathlib import Path

import pytest
from gkm.images.assembly.contents import scan_cache
from gkm.images.assembly.image import pack
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.captured.content import PackedFile
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm_agent.capturing import progress
from support.agent.capturing import CaptureNode, write_key
from support.agent.generations import FamilyNode
from support.images.inductor import AUTOGRAD, CODE, GRAPH, KERNEL, artifact_file, compiled, graph
from support.images.vllm import put
from support.registry.server import Registry

OTHER = GRAPH[:-1] + "b"
"""The key of another graph."""


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> FamilyNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return FamilyNode(made)


def compiles(node: FamilyNode, volume: str) -> Path:
    """Leave what a process of torch compiled in a volume."""
    return compiled(node.node.capture(volume, family="llama", kernels=()), volume)


def listed(node: FamilyNode, volume: str) -> list[PackedFile]:
    return progress.load_files(node.node.layout.captured / volume)


def graphs(node: FamilyNode, volume: str) -> list[str]:
    """Return the keys of the graphs in the image of a capture, one for each file."""
    return sorted(path.split("/")[-2] for path in (file.path for file in listed(node, volume)) if is_graph(path))


def is_graph(path: str) -> bool:
    return path.startswith(("fxgraph/", "aotautograd/"))


def test_a_pod_leaves_graphs_with_their_code_and_kernels_and_no_code_for_its_processor(node: FamilyNode) -> None:
    content = compiles(node, "csi-1")
    put(content, f"ps/{CODE}.so", b"\x7fELF")
    report = node.report("csi-1")
    assert (report.state, report.runtime, report.arch) == ("Announced", "inductor", "sm_90"), report.message
    assert graphs(node, "csi-1") == sorted([AUTOGRAD, GRAPH])
    others = {file.path for file in listed(node, "csi-1") if not is_graph(file.path)}
    names = ("add.json", "add.ptx", "add.cubin", "__grp__add.json")
    assert others == {f"ps/{CODE}.py", *(f"triton/0/{KERNEL}/{name}" for name in names)}


def test_a_graph_that_another_pod_compiled_too_is_a_duplicate(node: FamilyNode) -> None:
    compiles(node, "csi-1")
    base = node.choose(node.report("csi-1"))
    compiles(node, "csi-2")
    report = node.report("csi-2")
    assert (report.state, report.reason) == ("Duplicate", "NotRequired")
    assert base in report.message


def test_a_new_key_joins_and_a_key_of_the_generation_gets_no_further_graph(node: FamilyNode) -> None:
    compiles(node, "csi-1")
    base = node.choose(node.report("csi-1"))
    before = {file.path: file.sha256 for file in listed(node, "csi-1")}
    content = compiles(node, "csi-2")
    put(content, f"fxgraph/{OTHER[1:3]}/{OTHER}/content", graph())
    report = node.report("csi-2")
    assert (report.state, report.base) == ("Announced", base), report.message
    assert graphs(node, "csi-2") == sorted([AUTOGRAD, GRAPH, OTHER])
    after = {file.path: file.sha256 for file in listed(node, "csi-2")}
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1


def test_a_generation_on_an_image_that_a_person_built_has_each_of_its_files(
    node: FamilyNode, registry: Registry, tmp_path: Path
) -> None:
    """A program may open the file of artifacts by its name, and code for the processor is the builder's choice."""
    built = compiled(tmp_path / "built", "by a person")
    put(built, "model.artifacts", artifact_file({"inductor": [("fone", graph())]}))
    put(built, f"ps/{CODE}.so", b"\x7fELF")
    (tmp_path / "work").mkdir()
    selected = scan_cache(built, (), DependencyVersions())
    image = pack([selected], "model", tmp_path / "work", versions=DependencyVersions())
    ref = Reference.parse(f"{registry.host}/team/model:1")
    base = node.choose_image("llama", ref.pinned(push.image(node.client, ref, image)))

    content = node.node.capture("csi-2", family="llama", kernels=())
    put(content, f"fxgraph/{OTHER[1:3]}/{OTHER}/content", graph())
    put(content, "notes.artifacts", artifact_file({"inductor": [("fone", graph())]}))
    put(content, f"ps/a{CODE}.so", b"\x7fELF")
    report = node.report("csi-2")

    assert (report.state, report.base) == ("Announced", base), report.message
    every = {str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}
    assert {file.path for file in listed(node, "csi-2")} == {*every, f"fxgraph/{OTHER[1:3]}/{OTHER}/content"}
