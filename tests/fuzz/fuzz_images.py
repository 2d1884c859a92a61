"""Targets with a claim of their own: not only no foreign error, but nothing accepted that must not be."""

import tempfile
from pathlib import Path

from gkm.api.errors import GKMError
from gkm.api.policies import Policy
from gkm.hoststate import names
from gkm.images import cache
from gkm.images.archives.member_names import MAX_DEPTH, MAX_PATH_BYTES
from gkm.images.cache import Format
from gkm.images.manifest import (
    ACCEPTED_MEDIA_TYPES,
    MAX_LAYERS,
    OCI_INDEX,
    Descriptor,
    ImageManifest,
    Manifest,
    Platform,
    decode,
    parse_referrers,
)
from gkm.images.pulling.extract import Extraction
from gkm.images.reference import Reference
from gkm.images.signatures.evaluation import TrustPolicy
from gkm.images.signatures.signature_formats import Signature, parse_bundle, parse_legacy
from msgspec import Struct

CORPUS = Path(__file__).parent / "corpus"
SIGNED = "sha256:" + "a" * 64
"""What the seeds of `signature` sign, with the key below; its private half was thrown away."""
KEY = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2vd7n/fbBrtIVJ3AtxJbhbwixm3Z
jM6i5KddzrqbjdRcaa6rQOWNpOw7uNYSetVC0XcDOFrfeVGryiT6/koloQ==
-----END PUBLIC KEY-----
"""
MAX_BYTES = 1 << 20
MEMORY = Path("/dev/shm")
"""Ten times as many archives a second as on a disk."""
ROOT = str(CORPUS / "trusted-root" / "root.json")
_TRUST = TrustPolicy.from_policy(0, Policy(keys=[KEY], tlog="optional", trusted_root=ROOT))
_REF = Reference("registry.example", "cache", None, "sha256:" + "1" * 64)
_IMAGE = ImageManifest(2, Descriptor("c", "sha256:" + "2" * 64, 1), [])


class Legacy(Struct):
    """A seed: what lies in a signature's layer, and beside it."""

    annotations: dict[str, str]
    payload: str


def signature_in(data: bytes) -> Signature:
    """Return the signature in a seed: a bundle, or an object of payload and annotations."""
    seed = decode(data, Legacy, "seed") if b'"annotations"' in data and b'"payload"' in data[-8192:] else None
    return parse_legacy(seed.payload.encode(), seed.annotations) if seed else parse_bundle(data)


def reference(data: bytes) -> None:
    """What is accepted means the same when it is written and read again, and leads nowhere else."""
    found = Reference.parse(data.decode("utf-8", "replace"))
    assert Reference.parse(str(found)) == found
    assert found.registry == found.registry.lower()
    parts = found.repository.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert set("?#%@: \\") & set(found.name.removeprefix(found.registry)) == set()
    assert found.digest is None or names.is_digest(found.digest)


def manifest(data: bytes) -> None:
    """What is accepted has canonical digests, sizes that can be, and few layers."""
    described: list[Descriptor] = []
    for read in (_layers, _chosen, lambda raw: parse_referrers(raw, "x")):
        try:
            described += read(data)
        except GKMError as error:
            check_message(error)
    assert all(names.is_digest(found.digest) and found.size >= 0 for found in described)


def _layers(data: bytes) -> list[Descriptor]:
    image = Manifest.from_bytes(data, ACCEPTED_MEDIA_TYPES[0]).image()
    assert len(image.layers) <= MAX_LAYERS
    return [image.config, *image.layers, *([image.subject] if image.subject else [])]


def _chosen(data: bytes) -> list[Descriptor]:
    return [Manifest.from_bytes(data, OCI_INDEX).index().select(Platform("amd64", "linux"), "x")]


def labels(data: bytes) -> None:
    """What is accepted are plain words and bounded numbers."""
    found = cache.from_labels(_REF, _IMAGE, decode(data, dict[str, str], "labels"))
    assert 1 <= len(found.targets) <= cache.MAX_TARGETS
    for target in found.targets:
        assert target.backend.isascii()
        assert target.backend.isidentifier()
        assert target.arch.isascii()
        assert not set("/\\ \n") & set(target.arch)
        assert 1 <= target.warp_size <= 1024
    assert found.size_bytes is None or 0 <= found.size_bytes < 10**18


def signature(data: bytes) -> None:
    """Only what the key signed counts, and only for what it says. Nobody has the private key, so nothing is new."""
    found = signature_in(data)
    judged = _TRUST.evaluate(found, SIGNED)
    assert judged.reason
    assert judged.reason.isprintable()
    if judged.ok:
        assert any(found.signed == signature_in(seed.read_bytes()).signed for seed in _seeds())
        assert found.claims == (SIGNED,)


def _seeds() -> list[Path]:
    return [CORPUS / "signature" / name for name in ("bundle", "legacy")]


def tar(data: bytes) -> None:
    """What is extracted lies where it belongs: regular files and directories that are on the list, and no others."""
    with tempfile.TemporaryDirectory(prefix="gkm-fuzz-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
        destination = Path(directory) / "cache"
        destination.mkdir()
        extraction = Extraction(destination, [Format.TRITON], MAX_BYTES)
        try:
            extraction.layer([data[:777], data[777:]])
        finally:
            assert [path.name for path in Path(directory).iterdir()] == ["cache"]
            found = [path for path in destination.rglob("*") if not path.is_dir() or path.is_symlink()]
        assert all(path.is_file() and not path.is_symlink() for path in found)
        stored = {path.relative_to(destination).as_posix(): path.stat().st_size for path in found}
        assert stored == {file.path: file.size for file in extraction.files}
        assert sum(stored.values()) == extraction.size_bytes <= MAX_BYTES
        assert all(len(path.encode()) <= MAX_PATH_BYTES and path.count("/") < MAX_DEPTH for path in stored)


def check_message(error: GKMError) -> None:
    """A message is one bounded line that a terminal shows as it is."""
    text = str(error)
    assert text.isprintable(), ascii(text)
    assert len(text) < 2000, ascii(text[:200])
