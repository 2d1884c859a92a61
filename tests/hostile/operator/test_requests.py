"""Ten thousand hostile requests and hundreds of slow clients: honest clients are served."""

import http.client
import itertools
import json
import os
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import SHUT_WR, create_connection, socket
from threading import Event, Thread

import pytest
from gkm_operator.admission import validator
from gkm_operator.admission.https import server, session
from gkm_operator.admission.https.connection_limits import SessionStage
from gkm_operator.admission.https.session import Connection
from support.host.waiting import until
from support.operator.hostile import GET, REVIEWS, bodies, handshakes, large_workloads, waiting_workload, wires
from support.operator.limited import ARENAS
from support.operator.reviews import an_object, review
from support.operator.webhook import REVIEW, SECONDS, post, read_to_end, serving
from support.operator.webhook_process import UNSIGNED_IMAGE

BATCHES, BODIES, WIRES, HANDSHAKES = 20, 420, 50, 30
CROWD = 16
SLOW = server.CONNECTIONS + 50
UNSIGNED = json.dumps(review(object=an_object(UNSIGNED_IMAGE))).encode()
MAX_THREADS = 2 + server.THREADS + validator.THREADS
"""The main thread, the loop, those that judge, those that ask registries."""
OTHER_DESCRIPTORS = 32
MEMORY_LIMIT = 256 << 20
"""Of the container, in deploy/base/admission.yaml."""
WORKLOADS_LIMIT = 512 << 20
"""With the component domains or pod-caches: for the view, and for what reviews of workloads decode."""
GONE = (OSError, http.client.HTTPException)


class Victim:
    """The server's process, and what can be seen of it from outside."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self._process = process
        port = directory / "port"
        until(lambda: port.exists() or process.poll() is not None, "it serves")
        self.port = int(port.read_text())
        self.context = ssl.create_default_context(cafile=str(directory / "tls" / "ca.crt"))

    def connect_plain(self) -> socket:
        return create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def connect_tls(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.connect_plain(), server_hostname="127.0.0.1")

    def client(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS, context=self.context)

    def count(self, what: str) -> int:
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/{what}").iterdir())

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

    def judged(self, body: bytes, path: str = "/validate") -> bool:
        client = self.client()
        try:
            client.request("POST", f"{path}?timeout=10s", body)
            answer = client.getresponse()
            assert answer.status == 200
            return bool(json.loads(answer.read())["response"]["allowed"])
        finally:
            client.close()

    def serves_the_honest(self) -> None:
        for path, body in REVIEWS.items():
            assert self.judged(body, path), path
        assert not self.judged(UNSIGNED)


@contextmanager
def running(directory: Path) -> Iterator[Victim]:
    log = directory / "log"
    command = [
        sys.executable,
        str(Path(__file__).parents[2] / "support" / "operator" / "webhook_process.py"),
        str(directory),
    ]
    environment = os.environ | ARENAS
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, env=environment) as process,
    ):
        try:
            yield Victim(process, directory)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning"}
    assert not any("traceback" in line for line in lines)


@contextmanager
def besieged(victim: Victim) -> Iterator[None]:
    """Hold more slow clients of every kind than there are slots; an evicted one reconnects."""
    stop = Event()
    siege = Thread(target=_besiege, args=(victim, stop), daemon=True)
    siege.start()
    try:
        until(lambda: victim.count("fd") >= server.CONNECTIONS, "all places are held")
        yield
        assert siege.is_alive()
    finally:
        stop.set()
        siege.join(SECONDS)


def _besiege(victim: Victim, stop: Event) -> None:
    slow: list[socket | None] = [None] * SLOW
    with ExitStack() as held:
        while not stop.wait(0.5):
            for number, peer in enumerate(slow):
                with suppress(OSError):
                    if peer is None:
                        slow[number] = held.enter_context(_slow(victim, number))
                    elif number % 2:
                        peer.sendall(b" ")  # it drips
                    continue
                if peer is not None:
                    peer.close()
                slow[number] = None


def _slow(victim: Victim, number: int) -> socket:
    kind = number % 6
    if kind < 3:
        peer = victim.connect_plain()
        peer.sendall((b"", b"\x16", b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03")[kind])
        return peer
    connect_tls = victim.connect_tls()
    connect_tls.sendall((b"", b"POST /validate HTTP/1.1\r\nX:", post(b" " * 100_000)[:-1000])[kind - 3])
    return connect_tls


def send_bodies(victim: Victim, hostile: Iterable[tuple[str, bytes]]) -> None:
    """Send each body until the server answers: with a verdict or an error."""
    client = victim.client()
    try:
        for path, body in hostile:
            until(lambda: is_answered(client, path, body), f"an answer to a body for {path}", 300)  # noqa: B023 -- at once
    finally:
        client.close()


def is_answered(client: http.client.HTTPSConnection, path: str, body: bytes) -> bool:
    """Send a body; return False when the server evicted this client."""
    try:
        client.request("POST", path, body)
        answer = client.getresponse()
        told = answer.read()
    except GONE:
        client.close()
        return False
    assert answer.status in {200, 400, 503}
    assert answer.status != 200 or isinstance(json.loads(told)["response"]["allowed"], bool)
    return True


def send_wires(victim: Victim, hostile: Iterator[bytes]) -> None:
    """Send each on a connection of its own; the response is HTTP, or nothing."""
    for sent in hostile:
        with suppress(OSError), victim.connect_tls() as peer:
            peer.sendall(sent)
            socket.shutdown(peer, SHUT_WR)
            told = read_to_end(peer)
            assert not told or told.startswith(b"HTTP/1.1 ")


def send_handshakes(victim: Victim, hostile: Iterator[bytes]) -> None:
    for sent in hostile:
        with suppress(OSError), victim.connect_plain() as peer:
            peer.sendall(sent)
            if not len(sent) % 3:
                peer.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SOL_SOCKET, SO_LINGER: end by reset
                continue
            peer.shutdown(SHUT_WR)
            assert b"HTTP" not in read_to_end(peer)


@pytest.mark.heavy
@pytest.mark.timeout(900)  # ten thousand connections take minutes on a busy machine
def test_the_server_serves_others_during_ten_thousand_hostile_requests(tmp_path: Path) -> None:
    assert BATCHES * (BODIES + WIRES + HANDSHAKES) >= 10_000
    reviews, requests, hellos = bodies(7), wires(8), handshakes(9)
    with running(tmp_path) as victim:
        victim.serves_the_honest()
        with ExitStack() as siege:
            for batch in range(BATCHES):
                if batch == BATCHES // 2:
                    siege.enter_context(besieged(victim))
                send_bodies(victim, itertools.islice(reviews, BODIES))
                victim.serves_the_honest()
                send_wires(victim, itertools.islice(requests, WIRES))
                victim.serves_the_honest()
                send_handshakes(victim, itertools.islice(hellos, HANDSHAKES))
                victim.serves_the_honest()
                assert victim.count("task") <= MAX_THREADS
                assert victim.count("fd") <= server.CONNECTIONS + OTHER_DESCRIPTORS
        until(lambda: victim.count("fd") <= OTHER_DESCRIPTORS, "all connections are ended")


@pytest.mark.parametrize("kind", ["old versions", "no certificate of mine", "endless head", "endless body"])
def test_one_hostile_client_affects_no_other(tmp_path: Path, kind: str) -> None:
    with running(tmp_path) as victim:
        with suppress(OSError), victim.connect_plain() as peer:
            if kind == "old versions":
                context = ssl.create_default_context()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    context.minimum_version = ssl.TLSVersion.TLSv1
                    context.maximum_version = ssl.TLSVersion.TLSv1_1
                context.set_ciphers("ALL:@SECLEVEL=0")
                with pytest.raises(ssl.SSLError, match="protocol version"):
                    context.wrap_socket(peer, server_hostname="127.0.0.1")
            elif kind == "no certificate of mine":
                with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
                    ssl.create_default_context().wrap_socket(peer, server_hostname="127.0.0.1")
            else:
                with victim.context.wrap_socket(peer, server_hostname="127.0.0.1") as client:
                    client.sendall(GET[:-2] + b"X: " if kind == "endless head" else post(b""))
                    for _ in range(64):
                        client.sendall(b"x" * (1 << 20))
        victim.serves_the_honest()


def test_a_session_after_its_last_response_is_evictable_whatever_the_client_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "has_pending_data", lambda _: True)
    with serving(tmp_path) as webhook, webhook.connect_tls() as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert peer.recv(1 << 10).startswith(b"HTTP/1.1 200 ")
        (slot,) = webhook.server._limiter._slots
        until(lambda: slot.stage is SessionStage.IDLE, "it is to part")
        assert not slot.client.has_pending_data()


def large(inside: bytes, filling: bytes) -> bytes:
    """Return a review of the largest size, with `filling` repeated at the `...` of `inside`."""
    whole_review = REVIEW.replace(b'"metadata": {"name": "x"}, "spec": {', inside)
    return whole_review.replace(b"...", filling * ((session.MAX_BODY_BYTES - len(whole_review)) // len(filling)))


@pytest.mark.timeout(900)  # each body is sent until the server answers
def test_large_bodies_at_once_stay_within_the_memory_that_the_container_has(tmp_path: Path) -> None:
    hostile = [
        large(b'"spec": {"imagePullSecrets": [...1], ', b"1,"),
        large(b'"metadata": {"labels": {..."z": ""}}, "spec": {', b'"a":"",'),
        large(b'"metadata": {"ownerReferences": [...{}]}, "spec": {', b"{},"),
        large(b'"spec": {"unknown": [...1], ', b"[],"),
        large(b'"metadata": {"deletionTimestamp": "\xf0\x9f\x98\x80..."}, "spec": {', b"a"),
        REVIEW.replace(b'"CREATE"', b'"\xf0\x9f\x98\x80' + b"a" * (session.MAX_BODY_BYTES - len(REVIEW)) + b'"'),
    ]
    with running(tmp_path) as victim, ThreadPoolExecutor(12) as clients:
        for sent in [clients.submit(send_bodies, victim, [("/validate", body)]) for body in 3 * hostile]:
            sent.result(10 * SECONDS)
        idle = [victim.client() for _ in range(32)]
        for client in idle:
            client.request("POST", "/elsewhere", hostile[0])
            assert (
                client.getresponse().read() == b"the paths are %b, /healthz and /readyz\n" % ", ".join(REVIEWS).encode()
            )
        victim.serves_the_honest()
        assert victim.peak_bytes() < MEMORY_LIMIT
        for client in idle:
            client.close()


@pytest.mark.timeout(900)  # hundreds of large bodies, a few at a time
def test_large_bodies_about_workloads_stay_within_the_memory_that_the_container_has(tmp_path: Path) -> None:
    hostile = [(path, body) for path in REVIEWS for body in large_workloads(path)]
    with running(tmp_path) as victim, ThreadPoolExecutor(12) as clients:
        for sent in [clients.submit(send_bodies, victim, [each]) for each in 3 * hostile]:
            sent.result(10 * SECONDS)
        victim.serves_the_honest()
        assert victim.peak_bytes() < WORKLOADS_LIMIT


@pytest.mark.timeout(900)  # hundreds of large bodies, a few at a time
def test_large_workloads_that_wait_for_a_slow_api_server_stay_within_the_memory_that_the_container_has(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as victim, ThreadPoolExecutor(CROWD) as clients:
        sent = [clients.submit(send_bodies, victim, [waiting_workload(number)]) for number in range(CROWD)]
        for each in sent:
            each.result(10 * SECONDS)
        victim.serves_the_honest()
        assert victim.peak_bytes() < WORKLOADS_LIMIT
