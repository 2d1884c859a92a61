"""The GrpcServer of tests and the real one: what SocketServer relies on."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gkm_csi.server.grpc_server import GrpcServer, make_server
from support.csi.bound_server import Bound
from support.host.waiting import scaled

Make = Callable[[Path], GrpcServer]


@pytest.fixture(params=["fake", "real"])
def make(request: pytest.FixtureRequest) -> Make:
    return Bound if request.param == "fake" else lambda path: make_server({}, [path])


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gkm-csi-") as directory:
        yield Path(directory) / "csi.sock"


def test_the_socket_is_bound_before_the_start(make: Make, path: Path) -> None:
    server = make(path)
    assert path.is_socket()
    server.start()
    assert path.is_socket()
    assert server.stop(1.0).wait(scaled(20))


def test_a_server_replaces_the_socket_of_another_one(make: Make, path: Path) -> None:
    first = make(path)
    first.start()
    before = path.lstat().st_ino
    second = make(path)
    assert path.lstat().st_ino != before
    second.start()
    assert first.stop(1.0).wait(scaled(20))
    assert path.is_socket(), "the end of the first server removed the socket of the second"
    assert second.stop(1.0).wait(scaled(20))


def test_a_stopped_server_stops_again(make: Make, path: Path) -> None:
    server = make(path)
    server.start()
    assert server.stop(1.0).wait(scaled(20))
    assert server.stop(1.0).wait(scaled(20))
