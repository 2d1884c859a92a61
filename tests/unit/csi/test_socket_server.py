"""Removed sockets, files in their places, and a process that is stopped during a call."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2
from gkm_csi.server import grpc_server
from gkm_csi.server.grpc_server import ListenError, SocketServer
from gkm_csi.server.services import IdentityService
from support.csi.bound_server import Bound
from support.csi.driver import Client
from support.host.waiting import until


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gkm-csi-") as made:
        yield Path(made) / "plugin"


class Site:
    """Two sockets in one directory, and the servers that were made for them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.sockets = (directory / "csi.sock", directory / "reg.sock")
        self.made: list[Bound] = []
        self.refuse = False
        self.listening = SocketServer(self._make, self.sockets)
        self.listening.start()

    def _make(self) -> Bound:
        if self.refuse:
            raise ListenError("no")
        self.made.append(Bound(*self.sockets))
        return self.made[-1]


def gone(site: Site) -> None:
    site.sockets[1].unlink()


def replaced(site: Site) -> None:
    other = site.sockets[0].with_name("other")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(other))
    other.rename(site.sockets[0])


def directory_gone(site: Site) -> None:
    shutil.rmtree(site.sockets[0].parent)


def file_instead(site: Site) -> None:
    directory_gone(site)
    site.sockets[0].parent.write_text("in the way")


def link_instead(site: Site) -> None:
    place = site.sockets[0].parent
    directory_gone(site)
    place.symlink_to(place)


def test_with_all_sockets_present_restore_does_nothing(directory: Path) -> None:
    site = Site(directory)
    site.listening.restore(1)
    assert len(site.made) == 1


@pytest.mark.parametrize("change", [gone, replaced])
def test_a_replaced_or_missing_socket_is_listened_on_again(directory: Path, change: Callable[[Site], None]) -> None:
    site = Site(directory)
    change(site)
    site.listening.restore(1)
    assert [(one.started, one.stopped) for one in site.made] == [(1, 1), (1, 0)]
    site.listening.restore(1)
    assert len(site.made) == 2
    site.listening.stop(1)
    assert site.made[1].stopped == 1


@pytest.mark.parametrize("change", [gone, directory_gone, file_instead, link_instead])
def test_a_failed_restore_is_retried_and_ends_no_process(directory: Path, change: Callable[[Site], None]) -> None:
    site = Site(directory)
    change(site)
    site.refuse = True
    for _ in range(3):
        site.listening.restore(1)
    assert (len(site.made), site.made[0].stopped) == (1, 0)
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    directory.mkdir(exist_ok=True)
    site.refuse = False
    site.listening.restore(1)
    assert [(one.started, one.stopped) for one in site.made] == [(1, 1), (1, 0)]


def make(sockets: tuple[Path, ...]) -> SocketServer:
    services = {csi_pb2.DESCRIPTOR.services_by_name["Identity"]: IdentityService(list)}
    return SocketServer(lambda: grpc_server.make_server(services, sockets), sockets)


def test_only_sockets_of_killed_processes_are_swept(directory: Path) -> None:
    directory.mkdir()
    (directory / ".gkm-directory").mkdir()
    (directory / ".gkm-file").write_text("theirs")
    (directory / ".gkm-link").symlink_to(directory / ".gkm-file")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / ".gkm-1.sock"))
    running = make((directory / "csi.sock",))
    running.start()
    try:
        names = sorted(path.name for path in directory.iterdir())
        assert names == [".gkm-directory", ".gkm-file", ".gkm-link", "csi.sock"]
        with Client(directory / "csi.sock") as client:
            assert client.call("Probe", csi_pb2.ProbeRequest()).ready.value
    finally:
        running.stop(1)


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_a_file_that_is_not_a_socket_is_never_replaced(directory: Path, what: str) -> None:
    directory.mkdir()
    path = directory / "csi.sock"
    match what:
        case "file":
            path.write_text("theirs")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(directory)
    with pytest.raises(ListenError, match="no file is in the way"):
        make((path,)).start()
    assert (path.is_symlink(), path.is_dir(), path.is_file()) == (what == "link", what != "file", what == "file")
    assert list(directory.glob(".gkm-*")) == []


def test_listening_anew_again_and_again_leaves_no_threads_and_no_descriptors(directory: Path) -> None:
    paths = (directory / "csi.sock", directory / "reg.sock")
    running = make(paths)
    running.start()

    def counted() -> tuple[int, int]:
        return threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())

    def again(times: int) -> None:
        for _ in range(times):
            with Client(paths[0]) as client:
                client.call("Probe", csi_pb2.ProbeRequest())
            paths[0].unlink()
            running.restore(1)

    try:
        again(3)
        threads, descriptors = counted()
        again(20)
        until(lambda: counted()[0] <= threads + 4 and counted()[1] <= descriptors + 8, "what is left to go")
    finally:
        running.stop(1)


def test_failing_again_and_again_leaves_no_descriptors(directory: Path) -> None:
    directory.mkdir()
    (directory / "reg.sock").write_text("in the way")
    running = make((directory / "csi.sock", directory / "reg.sock"))
    counts = []
    for _ in range(60):
        with pytest.raises(ListenError, match=r"reg\.sock: cannot listen there"):
            running.start()
        counts.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))
    assert counts[-1] <= counts[9] + 8


def test_a_socket_that_cannot_be_bound_leaves_the_other_one_served(directory: Path) -> None:
    paths = (directory / "csi.sock", directory / "reg.sock")
    running = make(paths)
    running.start()
    paths[1].unlink()
    paths[1].mkdir()
    try:
        running.restore(1)
        with Client(paths[0]) as client:
            assert client.call("Probe", csi_pb2.ProbeRequest()).ready.value
        assert list(directory.glob(".gkm-*")) == []
        paths[1].rmdir()
        running.restore(1)
        with Client(paths[1]) as client:
            assert client.call("Probe", csi_pb2.ProbeRequest()).ready.value
    finally:
        running.stop(1)


def test_the_name_to_bind_to_is_hidden_and_beside() -> None:
    path = grpc_server.temporary_path(Path("/plugins/csi.sock"), 1)
    assert (path.parent, path.name) == (Path("/plugins"), f".gkm-{os.getpid()}.1")
