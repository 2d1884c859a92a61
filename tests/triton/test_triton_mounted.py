"""Real Triton on mounts like those of the CSI process, in a mount namespace of its own."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from csi_harness.namespaces import MountNamespace, private_namespace
from testbed.triton_cache import PROGRAMS, Compiled, TritonFailed, compiled, relocated, snapshot

pytestmark = pytest.mark.mounts


@dataclass(frozen=True)
class Pod:
    """A mount namespace in which the cache `content` is to be mounted at `mount_path`."""

    namespace: MountNamespace
    content: Path
    root: Path

    @property
    def mount_path(self) -> Path:
        return self.root / "pod" / "triton-cache"

    @property
    def upper(self) -> Path:
        return self.root / "upper"

    def mount(self, *, relocate: bool, writable: bool = False) -> None:
        for directory in (self.mount_path, self.root / "empty", self.upper, self.root / "work"):
            directory.mkdir(parents=True)
        tree = relocated(self.content, self.mount_path, self.root / "place").tree if relocate else "-"
        private = (self.upper, self.root / "work") if writable else ()
        arguments = (self.content, tree, self.root / "empty", self.mount_path, *private)
        run = self.namespace.run(sys.executable, PROGRAMS / "mount_cache.py", *arguments)
        assert run.returncode == 0, run.stderr

    def compiles(self, block: int = 128) -> Compiled:
        return compiled(self.mount_path, block, within=self.namespace.command(()))


@pytest.fixture
def pod(moved: Path, tmp_path: Path) -> Iterator[Pod]:
    """A pod that does not have the cache yet."""
    with private_namespace() as namespace:
        yield Pod(namespace, moved, tmp_path)


def test_a_read_only_mount_with_the_rewritten_files_on_top_is_a_hit(pod: Pod) -> None:
    before = snapshot(pod.content)
    pod.mount(relocate=True)
    found = pod.compiles()
    assert found.hit
    assert found.stages == []
    assert {Path(path).parent.parent for path in found.paths} == {pod.mount_path}
    assert snapshot(pod.content) == before


def test_without_them_the_same_kernel_fails_because_it_cannot_be_written(pod: Pod) -> None:
    pod.mount(relocate=False)
    with pytest.raises(TritonFailed, match=r"OSError: \[Errno 30\] Read-only file system"):
        pod.compiles()


def test_a_miss_on_a_read_only_mount_fails_before_anything_is_compiled(pod: Pod) -> None:
    pod.mount(relocate=True)
    with pytest.raises(TritonFailed, match=r"(?s)makedirs.*OSError: \[Errno 30\] Read-only file system"):
        pod.compiles(block=256)


def test_a_miss_on_a_mount_with_a_private_layer_is_compiled_into_it_and_then_a_hit(pod: Pod) -> None:
    before = snapshot(pod.content)
    pod.mount(relocate=True, writable=True)
    assert pod.compiles().hit
    assert snapshot(pod.upper) == {}
    assert not pod.compiles(block=256).hit
    assert pod.compiles(block=256).hit
    assert len(list(pod.upper.glob("*/__grp__add.json"))) == 1
    assert snapshot(pod.content) == before
