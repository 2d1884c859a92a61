"""The server of probes and metrics, under hostile clients."""

import errno
import socket
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from gkm.probes import addresses
from gkm.probes.messages import MAX_REQUEST_BYTES, Page
from gkm.probes.server import PageServer
from support.host.waiting import scaled, until

DEADLINE = scaled(30)


def broken() -> Page:
    raise ValueError("a secret of the process")


PAGES = {"/ok": lambda: Page(b"ok\n"), "/broken": broken, "/large": lambda: Page(b"x" * (8 << 20))}


@contextmanager
def serving(**bounds: float) -> Iterator[PageServer]:
    server = PageServer(("127.0.0.1", 0), PAGES, **bounds)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving() as server:
        yield server


def connect(server: PageServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE)


def read_all(peer: socket.socket) -> bytes:
    return b"".join(iter(lambda: peer.recv(1 << 16), b""))


def send(server: PageServer, request: bytes) -> bytes:
    with connect(server) as peer:
        peer.sendall(request)
        return read_all(peer)


def get(server: PageServer, path: str = "/ok") -> bytes:
    return send(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def is_cut_off(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_page_is_served_with_its_length_and_the_connection_ends(server: PageServer) -> None:
    head, _, body = get(server).partition(b"\r\n\r\n")

    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert {b"Content-Length: 3", b"Connection: close", b"Content-Type: text/plain; charset=utf-8"} <= set(
        head.splitlines()
    )
    assert body == b"ok\n"


def test_a_query_does_not_matter_and_head_has_no_body(server: PageServer) -> None:
    assert get(server, "/ok?verbose=1").endswith(b"ok\n")
    answer = send(server, b"HEAD /ok HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


def test_a_request_in_single_bytes_is_served(server: PageServer) -> None:
    with connect(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /ok HTTP/1.1\r\nHost: x\r\n\r\n":
            peer.sendall(bytes([byte]))
        assert read_all(peer).endswith(b"ok\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /nothing HTTP/1.1", b"404 Not Found"),
        (b"POST /ok HTTP/1.1", b"405 Method Not Allowed"),
        (b"GET ok HTTP/1.1", b"400 Bad Request"),
        (b"GET /ok HTTP/2.0", b"400 Bad Request"),
        (b"GET /ok HTTP/1.1 ", b"400 Bad Request"),
        (b"GET /ok\x00 HTTP/1.1", b"400 Bad Request"),
        (b"GET /\xff HTTP/1.1", b"400 Bad Request"),
        (b"GET /" + b"x" * 300 + b" HTTP/1.1", b"400 Bad Request"),
        (b"get /ok HTTP/1.1", b"400 Bad Request"),
        (b"GET\t/ok\tHTTP/1.1", b"400 Bad Request"),
        (b"GET http://elsewhere/ok HTTP/1.1", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400 Bad Request"),
        (b"", b"400 Bad Request"),
        (b"GET /broken HTTP/1.1", b"500 Internal Server Error"),
    ],
)
def test_a_malformed_request_is_refused_and_not_quoted(server: PageServer, request_line: bytes, status: bytes) -> None:
    answer = send(server, request_line + b"\r\nHost: x\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"secret" not in answer
    assert b"elsewhere" not in answer
    assert get(server).endswith(b"ok\n")


def test_a_request_without_end_is_refused_before_it_fills_the_memory(server: PageServer) -> None:
    with connect(server) as peer:
        peer.sendall(b"GET /ok HTTP/1.1\r\nX: " + b"x" * (2 * MAX_REQUEST_BYTES))
        assert read_all(peer).startswith(b"HTTP/1.1 431 ")


def test_a_client_that_drips_is_cut_off_at_the_deadline() -> None:
    with serving(seconds=0.5) as server, connect(server) as silent, connect(server) as dripping:
        dripping.settimeout(0.05)

        def drips_in_vain() -> bool:
            try:
                dripping.sendall(b"G")
                return dripping.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        until(drips_in_vain, "the client to be cut off")
        assert is_cut_off(silent)
        assert get(server).endswith(b"ok\n")


def test_a_client_that_never_reads_is_cut_off_at_the_deadline() -> None:
    with serving(seconds=2.0) as server, connect(server) as idle:
        idle.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert get(server).endswith(b"ok\n")
        until(lambda: not server._open, "the client to be cut off")
        try:
            received = len(read_all(idle))
        except ConnectionResetError:
            received = 0
        assert received < 8 << 20


def test_a_request_is_answered_beside_many_slow_clients() -> None:
    with serving(connections=4) as small, ExitStack() as stack:
        silent = [stack.enter_context(connect(small)) for _ in range(40)]
        assert get(small).endswith(b"ok\n")
        assert is_cut_off(silent[0])
        assert len(small._open) <= 4


def test_a_client_that_closes_its_side_and_reads_slowly_gets_the_whole_page(server: PageServer) -> None:
    with socket.socket() as peer:
        peer.settimeout(DEADLINE)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
        peer.connect(("127.0.0.1", server.port))
        peer.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        peer.shutdown(socket.SHUT_WR)
        assert len(read_all(peer)) > 8 << 20


def test_a_client_that_leaves_early_costs_only_its_connection(server: PageServer) -> None:
    for request in (b"", b"GET /", b"GET /large HTTP/1.1\r\n\r\n"):
        with connect(server) as peer:
            peer.sendall(request)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert get(server).endswith(b"ok\n")


def test_an_address_in_use_is_an_error(server: PageServer) -> None:
    second = PageServer(("127.0.0.1", server.port), PAGES)
    with pytest.raises(OSError, match="Address already in use") as caught:
        second.start()
    assert caught.value.errno == errno.EADDRINUSE
    second.close()


def test_close_stops_listening_and_cuts_off_connections(server: PageServer) -> None:
    with connect(server) as silent:
        port = server.port
        server.close()
        assert is_cut_off(silent)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    server.close()


def test_close_cuts_off_connections_that_are_accepted_at_that_moment() -> None:
    for _ in range(50):
        with serving() as server, connect(server) as fresh:
            server.close()
            assert is_cut_off(fresh)


def test_without_a_host_every_address_is_served() -> None:
    server = PageServer(("", 0), PAGES)
    server.start()
    try:
        assert get(server).endswith(b"ok\n")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8081", ("", 8081)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fd00::7]:80", ("fd00::7", 80)),
    ],
)
def test_an_address_is_parsed(text: str, address: tuple[str, int]) -> None:
    assert addresses.parse(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "8081", "localhost:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:٣", "::1:80",
     "[127.0.0.1]:80", "[::1:80", "::1]:80", "1.2.3:80", ":99999999999999999999", "a b:1", ":1e3"],
)  # fmt: skip
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"host:port|last port|not an IP address"):
        addresses.parse(text)


def test_each_request_makes_its_page_anew() -> None:
    calls: list[int] = []

    def counting() -> Page:
        calls.append(1)
        return Page(str(len(calls)).encode())

    make: Callable[[], Page] = counting
    server = PageServer(("127.0.0.1", 0), {"/": make})
    server.start()
    try:
        assert get(server, "/").endswith(b"\r\n\r\n1")
        assert get(server, "/").endswith(b"\r\n\r\n2")
    finally:
        server.close()


def test_a_failed_accept_is_retried(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket.accept
    failures = iter(range(3))

    def accept(listener: socket.socket) -> object:
        if next(failures, None) is not None:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert get(server).endswith(b"ok\n")
    assert next(failures, None) is None


def test_a_server_that_was_never_started_closes() -> None:
    server = PageServer(("::1", 0), PAGES)
    assert server.port == 0
    server.close()
    server.close()
