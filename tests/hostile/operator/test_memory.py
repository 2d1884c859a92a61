"""The admission process within the memory of its container, while registries answer with as much as they can."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.operator.deployment import Shelf, shelf
from support.operator.limited import MIB, SECONDS, admission
from support.registry.faults import Answer, Fault
from support.registry.push import Target
from support.registry.store import OCI_INDEX, OCI_MANIFEST
from support.sigstore.key_signatures import SigningKey, bundle_of, push_bundle

AT_ONCE, ROUNDS = 4, 3
"""A namespace has a fourth of the 16 threads that look at images."""


def filled(before: bytes, filling: bytes, after: bytes, size: int) -> bytes:
    return before + filling * ((size - len(before) - len(after)) // len(filling)) + after


def served(path: str, body: bytes, kind: str = OCI_INDEX) -> Fault:
    return Fault(path, lambda _: Answer(200, {"Content-Type": kind}, body))


REFERRERS = filled(b'{"manifests":[', b"{},", b"{}]}", 4 * MIB)
SMALL_REFERRERS = filled(b'{"manifests":[', b"{},", b"{}]}", MIB)
DESCRIPTOR = b'{"mediaType":"","digest":"sha256:%s","size":1' % (b"1" * 64)
ANNOTATED = b",".join(b'"%06x":"%06x"' % (number, number) for number in range(4 * MIB // 20))
LAYERS = b'{"schemaVersion":2,"config":%b},"layers":[%b,"annotations":{%b}}]}' % (DESCRIPTOR, DESCRIPTOR, ANNOTATED)
assert len(LAYERS) < 4 * MIB
EMPTY_LAYERS = filled(b'{"schemaVersion":2,"config":{},"layers":[', b"{},", b"{}]}", 4 * MIB)
FAULTS = {
    "referrers of 4 MiB": (served("referrers/", REFERRERS),),
    "referrers of 1 MiB": (served("referrers/", SMALL_REFERRERS),),
    "referrers in the fallback tag": (
        Fault("referrers/", lambda _: Answer(404, {}, b"")),
        served("manifests/sha256-[0-9a-f]{64}$", REFERRERS),
    ),
    "signatures of 4 MiB": (served(r"manifests/sha256-[0-9a-f]{64}\.sig$", LAYERS, OCI_MANIFEST),),
    "manifests of 4 MiB": (served("manifests/1$", LAYERS, OCI_MANIFEST),),
    "manifests of 4 MiB without layers": (served("manifests/1$", EMPTY_LAYERS, OCI_MANIFEST),),
}


@pytest.fixture
def images() -> Iterator[Shelf]:
    with shelf() as found:
        yield found


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("namespaces", [1, 4])
def test_hostile_registries_do_not_take_more_memory_than_the_container_has(
    images: Shelf, tmp_path: Path, kind: str, namespaces: int
) -> None:
    with ExitStack() as stack:
        # A registry too has only a fourth of the threads, so each namespace has a registry of its own.
        shelves = [images, *(stack.enter_context(shelf()) for _ in range(namespaces - 1))]
        names = [(n, f"{n}-{number}") for n in range(namespaces) for number in range(AT_ONCE * ROUNDS)]
        pushed = [(shelves[n].push(name, flaw=None)[0], f"ns{n}") for n, name in names]
        good, _ = images.push("good")
        with admission(tmp_path / "admission", shelves) as victim:
            for each in shelves:
                each.registry.misbehave(*FAULTS[kind])
            with ThreadPoolExecutor(AT_ONCE * namespaces) as clients:
                answers = list(clients.map(lambda asked: victim.ask(*asked), pushed, timeout=SECONDS))
            assert not any(answer["allowed"] and not answer.get("warnings") for answer in answers)
            images.registry.behave()
            assert victim.ask(good, "honest")["allowed"]


@pytest.mark.parametrize("namespaces", [1, 4])
def test_many_large_signatures_do_not_take_more_memory_than_the_container_has(
    images: Shelf, tmp_path: Path, namespaces: int
) -> None:
    with ExitStack() as stack:
        shelves = [images, *(stack.enter_context(shelf()) for _ in range(namespaces - 1))]
        pushed = []
        for n, each in enumerate(shelves):
            for number in range(AT_ONCE):
                image, digest = each.push(f"{n}-{number}", flaw=None)
                _attach(Target(each.registry.host, f"team/{n}-{number}"), digest, each.key)
                pushed.append((image, f"ns{n}"))
        with admission(tmp_path / "admission", shelves) as victim, ThreadPoolExecutor(len(pushed)) as clients:
            answers = list(clients.map(lambda asked: victim.ask(*asked), pushed, timeout=SECONDS))
            assert len(answers) == AT_ONCE * namespaces


def _attach(target: Target, digest: str, key: SigningKey) -> None:
    """Attach 64 bundles of nearly 256 KiB each, none of which signs the image."""
    bundle = json.loads(json.dumps(bundle_of(digest, key)))
    for number in range(64):
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": "1" * 64}}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {"filling": f"{number:04}" + "x" * (185 << 10)},
        }
        bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
        push_bundle(target, digest, bundle)
