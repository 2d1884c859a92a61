"""The webhook connects only to registries that the configuration covers, whoever creates a cache.

Real sockets and the real registry client: the tests count connections, and compare the responses.
"""

import json
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from gkm.api.caches import CacheSpec, GKMCache, LocalObjectReference
from gkm.api.config import Config, Policy, Registries, RegistryHost, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import ObjectMeta
from gkm.images.registries.transport import TransportLimits
from gkm_operator.admission.review import ReviewResponse
from gkm_operator.admission.validator import ImageValidator, VerdictCache
from gkm_operator.caches.outcome import CurrentImage, check_image
from gkm_operator.images import CheckedImages
from support.cluster.certificates import Authority
from support.host.waiting import until
from support.operator.images import FakeImages
from support.operator.reviews import an_object, request
from support.sigstore.key_signatures import SigningKey

LIMITS = TransportLimits(connect=0.3, stall=0.3, request=2.0, pause=0.01)
KEY = SigningKey().public_pem.decode()
DIGEST = "sha256:" + "a" * 64


@dataclass
class Port:
    """A listening port; `came` holds a number for each connection."""

    number: int
    came: list[int] = field(default_factory=list)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[Port]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = Port(server.getsockname()[1])

        def accept() -> None:
            with ExitStack() as peers:
                while True:
                    try:
                        peer, _ = server.accept()
                    except OSError:
                        return
                    port.came.append(1)
                    peers.enter_context(peer)
                    try:
                        serve(peer)
                    except OSError as error:
                        logging.getLogger(__name__).debug("gone: %s", error)

        Thread(target=accept, daemon=True).start()
        yield port
        server.shutdown(socket.SHUT_RDWR)


def judge(mode: str, *, covered: bool, hosts: dict[str, RegistryHost], seconds: float = 10) -> ImageValidator:
    policies = [Policy(keys=[KEY], images=["127.0.0.1:*" if covered else "registry.example/team/*"])]
    config = Config(
        verification=Verification(mode=mode, policies=policies),  # type: ignore[arg-type]
        registries=Registries(hosts=hosts),
    )
    images = CheckedImages.of(config, LIMITS, seconds=5)
    return ImageValidator(VerdictCache(images, images.verifier.stamp), mode, config.registries, seconds=seconds)


def answer(judging: ImageValidator, image: str, **changes: Any) -> ReviewResponse:  # noqa: ANN401 -- JSON
    return judging.review(request(object=an_object(image), **changes))


@pytest.mark.parametrize("secrets", [[], ["pull"]])
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_image_without_a_policy_is_refused_without_a_connection(dry_run: bool, secrets: list[str]) -> None:  # noqa: FBT001
    with listening(lambda peer: peer.close()) as port:
        host = f"127.0.0.1:{port.number}"
        judging = judge("enforce", covered=False, hosts={host: RegistryHost(plain_http=True)})
        for image in (f"{host}/team/x:1", f"{host}/team/x@{DIGEST}"):
            made = an_object(image)
            made["spec"] |= {"imagePullSecrets": [{"name": name} for name in secrets]}
            refused = judging.review(request(object=made, dryRun=dry_run))
            assert not refused.allowed
            assert "(SignatureMissing): no verification policy covers" in refused.message
        assert port.came == []


def test_the_mode_warn_checks_the_image_as_well() -> None:
    with listening(lambda peer: peer.close()) as port:
        host = f"127.0.0.1:{port.number}"
        warned = answer(judge("warn", covered=False, hosts={host: RegistryHost()}), f"{host}/team/x:1")
        assert warned.allowed
        assert port.came


@pytest.mark.parametrize("mode", ["enforce", "warn", "off"])
def test_a_private_address_is_refused_in_every_mode_without_a_connection(mode: str) -> None:
    with listening(lambda peer: peer.close()) as port:
        refused = answer(judge(mode, covered=True, hosts={}), f"127.0.0.1:{port.number}/team/x:1")
        assert not refused.allowed
        assert "(NotAllowed): registry 127.0.0.1" in refused.message
        assert port.came == []


def garbage(peer: socket.socket) -> None:
    peer.sendall(b"SSH-2.0-OpenSSH_9.2p1 \x1b[31m\r\n")
    peer.close()


def web(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    peer.close()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_no_response_reveals_the_service_behind_a_port(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    plain: bool,  # noqa: FBT001 -- a column
    dry_run: bool,  # noqa: FBT001 -- a column
) -> None:
    """Refused, silent, closed at once, no HTTP, and for TLS: plain HTTP and a certificate that is not trusted."""
    caplog.set_level(logging.INFO)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority.create().server(["127.0.0.1"]).write(tmp_path, "stranger"))

    def stranger(peer: socket.socket) -> None:
        peer.settimeout(2)
        context.wrap_socket(peer, server_side=True).close()

    with ExitStack() as stack:
        closed = stack.enter_context(listening(garbage))
        serving: list[Callable[[socket.socket], None]] = [lambda _peer: None, lambda peer: peer.close(), garbage]
        ports = [stack.enter_context(listening(serve)) for serve in serving + ([] if plain else [web, stranger])]
        stack.enter_context(socket.socket())
        with listening(garbage) as gone:
            pass
        hosts = {f"127.0.0.1:{port.number}": RegistryHost(plain_http=plain) for port in (*ports, gone, closed)}
        judging = judge("enforce", covered=True, hosts=hosts)
        late = judge("enforce", covered=True, hosts=hosts, seconds=0.05)
        reviews = [
            (validator, f"127.0.0.1:{port.number}", reference)
            for validator, port in [*((judging, port) for port in (*ports, gone)), (late, ports[0])]
            for reference in ("team/x:1", f"team/x@{DIGEST}")
        ]

        def anonymous(validator: ImageValidator, host: str, reference: str) -> tuple[bool, str, tuple[str, ...]]:
            image = f"{host}/{reference}"
            response = answer(validator, image, dryRun=dry_run)
            warnings = (warning.replace(image, "IMAGE").replace(host, "HOST") for warning in response.warnings)
            return response.allowed, response.message, tuple(warnings)

        # All at once: most of them wait for the deadline of a connection.
        with ThreadPoolExecutor(len(reviews)) as pool:
            answers = set(pool.map(lambda review: anonymous(*review), reviews))
        until(lambda: not any(thread.name == "check" for thread in enumerate_threads()), "the late ones have ended")
        wanted = "image IMAGE is not verified yet, and not pulled before it is: "
        wanted += "registry HOST could not be reached; the log of GKM says why"
        assert answers == {(True, "", (wanted,))}
        whys = {vars(record).get("why") for record in caplog.records if record.message == "registry not reached"}
        assert {"it refuses connections", "it did not answer in time"} < whys
        assert "\x1b" not in json.dumps([str(why) for why in whys], ensure_ascii=False)


def test_the_controllers_connect_to_no_forbidden_registry() -> None:
    """They do not read its Secrets either; a digest in the status is refused, whatever its registry would respond."""
    image = "registry.example/team/x:1"
    spec = CacheSpec(image, image_pull_secrets=[LocalObjectReference("pull")])
    cache = GKMCache(ObjectMeta("x", "a", uid="u", generation=1), spec)
    uncovered = CheckedImages.of(Config(), LIMITS)
    with pytest.raises(GKMError, match="no verification policy covers") as caught:
        uncovered.check_allowed(image, "a")
    images = FakeImages(refused={image: caught.value})
    for digest in (None, DIGEST):
        outcome = check_image(images, cache, None if digest is None else CurrentImage(digest))
        assert (outcome.status, outcome.reason, outcome.digest) == ("False", Reason.SIGNATURE_MISSING, digest)
        assert outcome.sure
    assert images.asked == []
