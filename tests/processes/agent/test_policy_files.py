"""The real agent follows the files that its policies name: a key that was replaced opens nothing, without a restart."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from gkm.hoststate.pointers import CacheState, Pointer
from support.agent.machine import HURRIED_AGENT, Machine, is_ready
from support.host.waiting import until
from support.registry.faults import Fault, status
from support.sigstore.key_signatures import SigningKey


@pytest.fixture
def by_file(machine: Machine) -> Machine:
    """Return a machine whose policy names its key by path."""
    key = machine.root / "cosign.pub"
    key.write_bytes(machine.key.public_pem)
    path = machine.root / "config.yaml"
    configuration = yaml.load(path.read_text(), yaml.CSafeLoader)
    configuration["verification"]["policies"][0]["keys"] = [str(key)]
    path.write_text(yaml.safe_dump(configuration))
    return machine


@contextmanager
def running(machine: Machine) -> Iterator[None]:
    """Run the agent until its cache is Ready, and on."""
    with machine.running(machine.arguments(), HURRIED_AGENT):
        until(lambda: is_ready(machine), "the cache is Ready", 60)
        yield


def replace_key(machine: Machine, key: SigningKey) -> None:
    """Put another file in the place of the key's."""
    path = machine.root / "cosign.pub"
    new = path.with_name("new.pub")
    new.write_bytes(key.public_pem)
    new.rename(path)


def failed(machine: Machine) -> Pointer | None:
    pointer = machine.pointer()
    return pointer if pointer is not None and pointer.state is CacheState.FAILED else None


@pytest.mark.parametrize(
    ("fault", "reason", "said"),
    [
        pytest.param(None, "SignatureInvalid", "it was not made by a trusted key", id="registry answers"),
        pytest.param(status("/v2/", 404), "SignatureMissing", "no signature was found", id="404"),
        pytest.param(status("/v2/", 503), "SignatureInvalid", "which no policy names any more", id="503"),
        pytest.param(status("/v2/", 401), "SignatureInvalid", "which no policy names any more", id="401"),
    ],
)
def test_a_cache_by_a_key_that_was_replaced_is_not_served(
    by_file: Machine, fault: Fault | None, reason: str, said: str
) -> None:
    with running(by_file):
        if fault is not None:
            by_file.registry.misbehave(fault)
        replace_key(by_file, SigningKey())
        pointer = until(lambda: failed(by_file), "the cache is withdrawn", 60)
    assert (pointer.reason, said in pointer.message) == (reason, True)


def test_a_file_that_is_replaced_by_its_like_leaves_the_cache_ready(by_file: Machine) -> None:
    with running(by_file):
        by_file.registry.requests.clear()
        by_file.registry.misbehave(status("/v2/", 503))
        replace_key(by_file, by_file.key)
        by_file.declare("another")
        # The agent has made further turns when it has tried the other cache.
        until(lambda: by_file.registry.requests, "the other cache is tried", 60)
        assert is_ready(by_file)
