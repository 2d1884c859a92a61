"""One TLS connection in an event loop: a busy client does not block other sessions."""

import _ssl
import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_int, c_size_t, c_void_p, create_string_buffer
from pathlib import Path

import pytest
from gkm_operator.admission.https.server import ServerCertificate
from gkm_operator.admission.https.session import CHUNK, FEED_BYTES, Connection
from support.operator.issued import issue

CRYPTO = CDLL(_ssl.__file__)
"""The OpenSSL that Python has loaded: its own module cannot send KeyUpdates."""

UPDATES = 4000
pytestmark = pytest.mark.skipif(not hasattr(CRYPTO, "SSL_key_update"), reason="Python's OpenSSL is not for others")


class Client:
    """A client over a socket that blocks."""

    def __init__(self, peer: socket.socket) -> None:
        for name, gives, *takes in (
            ("TLS_client_method", c_void_p),
            ("SSL_CTX_new", c_void_p, c_void_p),
            ("SSL_new", c_void_p, c_void_p),
            ("SSL_set_fd", c_int, c_void_p, c_int),
            ("SSL_connect", c_int, c_void_p),
            ("SSL_do_handshake", c_int, c_void_p),
            ("SSL_key_update", c_int, c_void_p, c_int),
            ("SSL_write", c_int, c_void_p, c_void_p, c_int),
            ("SSL_set0_wbio", None, c_void_p, c_void_p),
            ("BIO_s_mem", c_void_p),
            ("BIO_new", c_void_p, c_void_p),
            ("BIO_ctrl_pending", c_size_t, c_void_p),
            ("BIO_read", c_int, c_void_p, c_void_p, c_int),
        ):
            function = getattr(CRYPTO, name)
            function.restype, function.argtypes = gives, takes
        self._peer = peer
        self._tls = CRYPTO.SSL_new(CRYPTO.SSL_CTX_new(CRYPTO.TLS_client_method()))
        CRYPTO.SSL_set_fd(self._tls, peer.fileno())

    def connect(self) -> None:
        """Agree on keys."""
        assert CRYPTO.SSL_connect(self._tls) == 1

    def updates(self, number: int) -> bytes:
        """Return that number of KeyUpdates (RFC 8446, section 4.6.3), and one byte of data, as bytes on the wire."""
        written = CRYPTO.BIO_new(CRYPTO.BIO_s_mem())
        CRYPTO.SSL_set0_wbio(self._tls, written)
        for _ in range(number):
            assert CRYPTO.SSL_key_update(self._tls, 0) == 1
            assert CRYPTO.SSL_do_handshake(self._tls) == 1
        assert CRYPTO.SSL_write(self._tls, b"x", 1) == 1
        wire = create_string_buffer(CRYPTO.BIO_ctrl_pending(written))
        assert CRYPTO.BIO_read(written, wire, len(wire)) == len(wire)
        return wire.raw


@contextmanager
def pair(directory: Path) -> Iterator[tuple[Connection, Client, socket.socket]]:
    issued = issue(directory, ["127.0.0.1"])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.0)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * UPDATES)
        yield Connection(ours, ServerCertificate(issued.certificate, issued.key).context()), Client(theirs), theirs


def test_tls_records_without_data_do_not_block_other_sessions(tmp_path: Path) -> None:
    async def turns() -> tuple[int, int]:
        with pair(tmp_path) as (connection, client, peer):
            await asyncio.gather(connection.handshake(), asyncio.to_thread(client.connect))
            wire = client.updates(UPDATES)
            await asyncio.to_thread(peer.sendall, wire)
            received = asyncio.create_task(connection.receive())
            taken = 0
            while not received.done():
                await asyncio.sleep(0)
                taken += 1
            assert await received == b"x"
            return taken, len(wire)

    taken, sent = asyncio.run(turns())
    assert sent > 4 * CHUNK
    assert taken >= sent // FEED_BYTES
