"""Whatever a hostile pod leaves in its private layer: nothing of it leaves the node, and the reason is recorded."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from gkm.api.errors import Reason
from gkm.images.assembly import tree
from gkm_agent.capturing import inspection
from gkm_agent.capturing.progress import CaptureState
from gkm_agent.store.captures import CapturesInUse
from support.agent.capturing import H100_KERNEL, CaptureNode, write_key
from support.registry.server import Registry

SECRET = b"a secret of the node"


@pytest.fixture
def node(registry: Registry, tmp_path: Path) -> CaptureNode:
    made = CaptureNode(tmp_path, registry.host)
    write_key(made.key_file)
    return made


def kernel(content: Path) -> Path:
    return content / H100_KERNEL


def rewritten(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.chmod(0o600)
    path.write_text(json.dumps(value))


def forged(**target: object) -> Callable[[Path], None]:
    """Let the metadata name other hardware than the node has."""
    return lambda content: rewritten(
        kernel(content) / "add_kernel.json",
        lambda value: value.update(target={"backend": "cuda", "arch": 90, "warp_size": 32} | target),
    )


def group(path: str) -> Callable[[Path], None]:
    """Let the group file name a path."""
    return lambda content: rewritten(
        kernel(content) / "__grp__add_kernel.json", lambda value: value.update(child_paths={"add_kernel.ptx": path})
    )


def link(content: Path) -> None:
    secret = content.parent.parent / "secret.ptx"
    secret.write_bytes(SECRET)
    (kernel(content) / "more.ptx").symlink_to(secret)


def directory_link(content: Path) -> None:
    (content / ("A" * 52)).symlink_to("/etc")


def fifo(content: Path) -> None:
    os.mkfifo(kernel(content) / "more.ptx")


def unix_socket(content: Path) -> None:
    here = os.open(kernel(content), os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{here}/s.json")
    os.close(here)


def device(content: Path) -> None:
    try:
        os.mknod(kernel(content) / "more.cubin", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("needs the right to make devices")


def escapes(content: Path) -> None:
    (kernel(content) / "\x1b]0;evil\x07.ptx").write_bytes(b"")


def bidirectional(content: Path) -> None:
    (content / ("\u202e" + "A" * 20)).mkdir()


def deep(content: Path) -> None:
    content.joinpath("torch_compile_cache", "0123456789", *("d" * 20)).mkdir(parents=True)
    content.joinpath("torch_compile_cache", "0123456789", *("d" * 20), "model").write_bytes(SECRET)


def sparse(content: Path) -> None:
    with (kernel(content) / "more.ttir").open("wb") as file:
        file.truncate(1 << 40)


def no_elf(content: Path) -> None:
    (kernel(content) / "more.cubin").write_bytes(SECRET)


def other_ptx(content: Path) -> None:
    (kernel(content) / "more.ptx").write_text(".version 8.4\n.target sm_75\n.address_size 64\n")


def long_group(content: Path) -> None:
    (kernel(content) / "__grp__more.json").write_bytes(b" " * (inspection.MAX_GROUP_BYTES + 1))


def no_group(content: Path) -> None:
    (kernel(content) / "__grp__more.json").write_bytes(b"[" * 50_000)


def nothing_known(content: Path) -> None:
    (kernel(content)).rename(content / "home")


ROWS: dict[str, tuple[Callable[[Path], None], set[Reason]]] = {
    "link": (link, {Reason.UNSAFE_CONTENT}),
    "link to a directory": (directory_link, {Reason.UNSAFE_CONTENT}),
    "fifo": (fifo, {Reason.UNSAFE_CONTENT}),
    "socket": (unix_socket, {Reason.UNSAFE_CONTENT}),
    "device": (device, {Reason.UNSAFE_CONTENT}),
    "name with escapes": (escapes, {Reason.UNSAFE_CONTENT}),
    "name with an override": (bidirectional, {Reason.UNSAFE_CONTENT}),
    "sparse file": (sparse, {Reason.TOO_LARGE}),
    "cubin that is none": (no_elf, {Reason.UNSAFE_CONTENT}),
    "PTX of another GPU": (other_ptx, {Reason.METADATA_INVALID, Reason.ARCHITECTURE_MISMATCH}),
    "metadata of another GPU": (forged(arch=80), {Reason.METADATA_INVALID, Reason.ARCHITECTURE_MISMATCH}),
    "metadata of another backend": (forged(backend="hip", arch="gfx942"), {Reason.BACKEND_MISMATCH}),
    "metadata of another warp size": (forged(warp_size=64), {Reason.WARP_SIZE_MISMATCH}),
    "metadata of no GPU": (forged(arch="../../etc"), {Reason.METADATA_MISSING}),
    "group with an absolute path": (group("/etc/passwd"), {Reason.UNSAFE_CONTENT}),
    "group that climbs": (group(f"/cache/../../{H100_KERNEL}/add_kernel.ptx"), {Reason.UNSAFE_CONTENT}),
    "group with a relative path": (group(f"{H100_KERNEL}/add_kernel.ptx"), {Reason.UNSAFE_CONTENT}),
    "group with escapes": (group(f"/\x1b[2J/{H100_KERNEL}/add_kernel.ptx"), {Reason.UNSAFE_CONTENT}),
    "group of any size": (long_group, {Reason.UNSAFE_CONTENT}),
    "group of brackets": (no_group, {Reason.UNSAFE_CONTENT}),
    "no cache at all": (nothing_known, {Reason.METADATA_MISSING}),
}


@pytest.mark.parametrize("directory", ["", "triton"])
@pytest.mark.parametrize("row", ROWS)
def test_nothing_leaves_the_node_and_the_reason_is_recorded(
    node: CaptureNode, registry: Registry, row: str, directory: str
) -> None:
    make, reasons = ROWS[row]
    content = node.capture()
    if directory:
        (content / directory).mkdir()
        kernel(content).rename(kernel(content / directory))
    make(content / directory)
    worker = node.worker()

    assert worker.make_images()

    (report,) = worker.reports()["ml-apps"]
    assert report.state == "Refused"
    assert report.reason in reasons
    assert report.message.isprintable()
    assert SECRET.decode() not in report.message
    assert node.progress().state is CaptureState.REFUSED
    assert not registry.requests
    assert not list(content.parent.glob("image*"))


@pytest.mark.parametrize("where", [(inspection, "MAX_FILES"), (tree, "MAX_FILES"), (inspection, "MAX_FILES_BYTES")])
def test_any_number_of_files_takes_bounded_work(
    node: CaptureNode, registry: Registry, monkeypatch: pytest.MonkeyPatch, where: tuple[ModuleType, str]
) -> None:
    content = node.capture()
    # Names in one directory and links to one inode are the cheapest files that there are.
    for number in range(1_000):
        os.link(kernel(content) / "add_kernel.ttir", kernel(content) / f"{number}.ttir")
    monkeypatch.setattr(*where, 1_000)
    worker = node.worker()
    assert worker.make_images()
    (report,) = worker.reports()["ml-apps"]
    assert (report.state, report.reason) == ("Refused", Reason.TOO_LARGE)
    assert not registry.requests


def test_hard_links_count_each_time(node: CaptureNode, registry: Registry) -> None:
    content = node.capture()
    with (kernel(content) / "big.ttir").open("wb") as file:
        file.truncate(60 << 20)
    for number in range(4):
        os.link(kernel(content) / "big.ttir", kernel(content) / f"{number}.ttir")
    node.settings = {"max_bytes": 200 << 20}
    worker = node.worker()
    assert worker.make_images()
    assert worker.reports()["ml-apps"][0].reason == Reason.TOO_LARGE
    assert not registry.requests


def test_files_of_no_cache_stay_on_the_node(node: CaptureNode, registry: Registry) -> None:
    content = node.capture()
    real = {f"{H100_KERNEL}/{path.name}" for path in kernel(content).iterdir()}
    for place in (content / ".ssh", content / "home", kernel(content) / "tmp.pid_1_2", kernel(content)):
        place.mkdir(exist_ok=True)
        (place / "id_rsa").write_bytes(SECRET)
    (content / "kernel.ptx").write_bytes(SECRET)
    (kernel(content) / ".hidden.ptx").write_bytes(SECRET)
    deep(content)
    worker = node.worker()

    assert worker.make_images()

    assert worker.reports()["ml-apps"][0].state == "Announced"
    listed = {file["path"] for file in json.loads((content.parent / "image-files.json").read_bytes())}
    assert listed == real
    stored = [blob for each in registry.store.repositories.values() for blob in each.blobs.values()]
    assert stored
    assert not any(SECRET in blob for blob in stored)


def test_a_link_in_the_place_of_a_capture_is_followed_nowhere(node: CaptureNode, registry: Registry) -> None:
    content = node.capture("csi-1")
    content.parent.rename(node.root / "elsewhere")
    (node.layout.captured / "csi-1").symlink_to(node.root / "elsewhere")
    assert node.worker().make_images()
    assert not registry.requests
    assert not (node.root / "elsewhere" / "progress.json").exists()


@pytest.mark.parametrize(
    "description",
    [b"", b"[", b"{}", b"x" * 100_000, json.dumps({"volumeId": "../x", "podNamespace": "../../y"}).encode()],
)
def test_a_description_of_another_kind_is_no_capture(node: CaptureNode, registry: Registry, description: bytes) -> None:
    content = node.capture()
    (content.parent / "captured.json").write_bytes(description)
    worker = node.worker(CapturesInUse())
    worker.make_images()
    assert worker.reports() == {}
    assert not registry.requests
