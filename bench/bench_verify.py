"""Verification of one image in a registry on loopback, requests included: by key and keyless, in both forms."""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from figures import Result
from gkm.api.config import Identity, Policy, Verification
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verifier
from support.registry.clients import plain_client
from support.registry.olareg import Olareg
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, payload_of, push_bundle, push_legacy
from support.sigstore.keyless import Person, Service
from support.sigstore.services import Sigstore

KEY, PERSON = SigningKey(), Person()


@dataclass(frozen=True)
class VerifySize:
    """How many runs count, how many warm up (sigstore-python is loaded then), and verifications of an image in each."""

    runs: int
    warm_ups: int
    times: int


FULL = VerifySize(runs=5, warm_ups=1, times=200)
SMALLEST = VerifySize(runs=1, warm_ups=0, times=2)


def run(size: VerifySize) -> Result:
    """Measure."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-")))
        olareg = stack.enter_context(Olareg.start(directory))
        sigstore = Sigstore()
        root = str(sigstore.write_trusted_root(directory))
        by_key = Policy([KEY.public_pem.decode()], tlog="required", trusted_root=root)
        keyless = Policy(identities=[Identity(PERSON.issuer, PERSON.subject)], trusted_root=root)
        registry = plain_client(olareg.host)
        cases = {
            "key_bundle": (by_key, _bundle(sigstore, KEY)),
            "key_legacy": (by_key, _legacy(sigstore, KEY)),
            "keyless_bundle": (keyless, _bundle(sigstore, PERSON)),
            "keyless_legacy": (keyless, _legacy(sigstore, PERSON)),
        }
        prepared = {}
        for name, (policy, sign) in cases.items():
            target = Target(olareg.host, f"bench/{name.replace('_', '-')}")
            digest = target.image([(name.encode(), "application/vnd.oci.image.layer.v1.tar")])
            sign(target, digest)
            prepared[name] = Verifier(Verification(policies=[policy])), Reference.parse(f"{target}@{digest}")
        return Result.of(
            [_once(registry, prepared, size.times) for _ in range(size.warm_ups + size.runs)][size.warm_ups :]
        )


def _bundle(sigstore: Sigstore, by: SigningKey | Person) -> Callable[[Target, str], object]:
    return lambda target, digest: push_bundle(target, digest, Service(sigstore).bundle(digest, by))


def _legacy(sigstore: Sigstore, by: SigningKey | Person) -> Callable[[Target, str], object]:
    return lambda target, digest: push_legacy(target, digest, *Service(sigstore).legacy(payload_of(target, digest), by))


def _once(registry: Registry, prepared: dict[str, tuple[Verifier, Reference]], times: int) -> dict[str, float]:
    row: dict[str, float] = {}
    every: list[float] = []
    for name, (verifier, ref) in prepared.items():
        taken = []
        for _ in range(times):
            begun = time.monotonic()
            verdict = verifier.verify(registry, ref, None)
            taken.append((time.monotonic() - begun) * 1000)
            if not verdict.verified:
                raise RuntimeError(verdict.message)
        row[f"{name}_p50_ms"] = median(taken)
        every += taken
    return {"verify_p50_ms": median(every), "verify_p99_ms": sorted(every)[len(every) * 99 // 100], **row}
