"""The time that a registry may take, and the delays between retries."""

import socket
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from gkm.images.registries.transport import (
    MAX_DELAY_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    RegistryRequest,
    Transport,
    TransportLimits,
    requested_pause,
    retry_delay,
)
from support.images.private_registry import as_user, client, image_of, private
from support.images.unreached import unreached
from support.registry import faults
from support.registry.faults import Fault


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("", 0.0),
        ("3", 3.0),
        ("0", 0.0),
        ("60", 60.0),
        ("9" * 50, MAX_RETRY_AFTER_SECONDS),
        ("-1", 0.0),
        ("soon", 0.0),
        ("٣", 0.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("Fri, 99 Dec 1999 23:59:59 GMT", 0.0),
        pytest.param("x" * 100_000, 0.0, id="much too long"),
    ],
)
def test_the_requested_pause_is_bounded(retry_after: str, seconds: float) -> None:
    assert requested_pause(retry_after) == seconds


def test_the_requested_pause_may_be_a_date() -> None:
    tomorrow = format_datetime(datetime.now(UTC) + timedelta(days=1))
    assert requested_pause(tomorrow) == MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("attempt", "requested", "least", "most"),
    [
        (2, 0.0, 0.2, 0.4),
        (3, 0.0, 0.4, 0.8),
        (2, 3.0, 3.0, 4.5),
        (2, 60.0, MAX_DELAY_SECONDS, 1.5 * MAX_DELAY_SECONDS),
    ],
)
def test_the_delays_of_clients_differ_within_bounds(attempt: int, requested: float, least: float, most: float) -> None:
    delays = {retry_delay(attempt, requested) for _ in range(100)}
    assert len(delays) > 90
    assert least <= min(delays)
    assert max(delays) <= most


@pytest.mark.parametrize(
    ("retry_after", "requests", "pause"),
    [("", 3, 0.0), ("0", 3, 0.0), ("60", 1, 60.0), ("Fri, 31 Dec 2100 23:59:59 GMT", 1, MAX_RETRY_AFTER_SECONDS)],
)
def test_a_registry_that_is_always_busy_fails_with_its_status(retry_after: str, requests: int, pause: float) -> None:
    with private() as registry:
        registry.auth = None
        registry.misbehave(faults.status("manifests/", 429, headers={"Retry-After": retry_after}))
        with pytest.raises(GKMError, match=r"answers 429; .*try again later") as caught:
            client(None, registry).resolve(image_of(registry))
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
        assert caught.value.retry_after == pause
        assert len(registry.requests) == requests


def test_a_busy_token_server_states_its_pause() -> None:
    with private() as registry:
        registry.misbehave(faults.status("/token", 429, headers={"Retry-After": "60"}))
        with pytest.raises(GKMError, match="its token server answers 429") as caught:
            client(as_user(registry, "robot"), registry).resolve(image_of(registry))
        assert caught.value.retry_after == 60.0


def test_a_registry_that_accepts_no_connection_fails() -> None:
    with socket.socket() as full, ExitStack() as others:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # its queue is full now: the kernel drops further connections
            other = others.enter_context(socket.socket())
            other.settimeout(0)
            other.connect_ex(full.getsockname())
        host = f"127.0.0.1:{full.getsockname()[1]}"
        limits = TransportLimits(connect=0.2, stall=30.0, request=30.0)
        ours = Client(Registries(hosts={host: RegistryHost(plain_http=True)}), limits=limits)
        with unreached("did not answer in time"):
            ours.resolve(Reference.parse(f"{host}/team/x:1"))


def test_a_silent_registry_fails() -> None:
    with private() as registry:
        registry.misbehave(faults.stalled("manifests/"))
        with unreached("did not answer in time"):
            client(None, registry).resolve(image_of(registry))


def test_a_response_beyond_the_deadline_fails_as_a_timeout() -> None:
    with private() as registry:
        registry.auth = None
        registry.misbehave(Fault("manifests/", drip_headers=(1, 0.05)))
        slow = TransportLimits(connect=1.0, stall=30.0, request=0.5)
        ours = Client(Registries(hosts={registry.host: RegistryHost(plain_http=True)}), limits=slow)
        with unreached("did not answer in time"):
            ours.resolve(image_of(registry))


def test_a_body_that_stalls_until_the_deadline_is_reported_as_slow() -> None:
    with private() as registry:
        registry.auth = None
        registry.misbehave(faults.stalled("manifests/", after=10))
        slow = TransportLimits(connect=1.0, stall=30.0, request=0.5)
        ours = Client(Registries(hosts={registry.host: RegistryHost(plain_http=True)}), limits=slow)
        with pytest.raises(GKMError, match="sends too slowly"):
            ours.resolve(image_of(registry))


def test_an_upload_that_the_server_does_not_read_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host = f"127.0.0.1:{deaf.getsockname()[1]}"
        config = Registries(hosts={host: RegistryHost(plain_http=True)})
        transport = Transport(config, host, TransportLimits(connect=1.0, stall=0.2, request=30.0))
        request = RegistryRequest("PUT", f"http://{host}/v2/", body=bytes(64 << 20), attempts=1)
        with unreached("did not answer in time"), transport.send(request, time.monotonic() + 60):
            pass


def test_a_silent_token_server_fails() -> None:
    with private() as registry:
        registry.misbehave(faults.stalled("/token"))
        with pytest.raises(GKMError) as caught:
            client(as_user(registry, "robot"), registry).resolve(image_of(registry))
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
