"""What is fuzzed: every parser that reads bytes from outside. A target returns, or raises an error of ours."""

from collections.abc import Callable
from pathlib import Path

from gkm.api import config
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError
from gkm.images import cache, entry_body, keyless, transparency, trusted_root
from gkm.images.archive import Stream, members
from gkm.images.certificates import Untrusted
from gkm.images.entry_body import Logged
from gkm.images.extract import checked_path
from gkm.images.inflate import inflated
from gkm.images.manifest import ACCEPTED, Descriptor, ImageManifest, Index, Manifest, decode
from gkm.images.material import Material
from gkm.images.reference import Reference
from gkm.images.signatures import parse_bundle, parse_legacy
from gkm.images.transparency import Entry, Proof
from gkm.mounts import relocation_triton, relocation_vllm
from msgspec import Struct

OURS = (GKMError, ConfigInvalid, Untrusted)
_ROOT = Material().root(str(Path(__file__).parent / "corpus" / "trusted-root" / "root.json"))
_REF = Reference("registry.example", "cache", None, "sha256:" + "1" * 64)
_IMAGE = ImageManifest(2, Descriptor("c", "sha256:" + "2" * 64, 1), [])


class _Legacy(Struct):
    annotations: dict[str, str]
    payload: str


def _reference(data: bytes) -> None:
    Reference.parse(data.decode("utf-8", "replace"))


def _manifest(data: bytes) -> None:
    Manifest.of(data, ACCEPTED[0]).image()
    decode(data, Index, "index")


def _labels(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    cache.of_labels(_REF, _IMAGE, {"cache.triton.image/summary": text, "cache.triton.image/entry-count": text[:20]})


def _signature(data: bytes) -> None:
    for parse in (parse_bundle, lambda raw: parse_legacy(raw, {"dev.cosignproject.cosign/signature": "AA=="})):
        try:
            parse(data)
        except GKMError:
            continue


def _keyless(data: bytes) -> None:
    """Judge a bundle, or an object of payload and annotations, as far as it goes; the seeds are good ones."""
    seed = decode(data, _Legacy, "seed") if b'"annotations"' in data[:99] else None
    found = parse_legacy(seed.payload.encode(), seed.annotations) if seed else parse_bundle(data)
    if found.certificate:
        keyless.signer(found, _ROOT)
    elif found.entry:
        transparency.check(found.entry, _ROOT.trusted)


def _log_entry(data: bytes) -> None:
    entry_body.check(data, Logged(b"signed", b"signature", b"verifier", b"payload"))


def _checkpoint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    log_id = next(iter(_ROOT.trusted.logs[0].ids))
    transparency.check(Entry(log_id, 0, 0, b"body", proof=Proof(0, 1, b"root", (), text)), _ROOT.trusted)


def _trusted_root(data: bytes) -> None:
    trusted_root.parse(data, "trusted root")


def _tar(data: bytes) -> None:
    for member, content in members(Stream([data[:777], data[777:]])):
        checked_path(member.name)
        for _ in content:
            pass


def _layer(data: bytes) -> None:
    for _ in inflated([data[:99], data[99:]]):
        pass


def _group(data: bytes) -> None:
    relocation_triton.rewritten(data, "/cache/KEY", {"a.json", "a.cubin"})


def _index(data: bytes) -> None:
    relocation_vllm.rewritten(data, "/cache/KEY", {"a.py"})


TARGETS: dict[str, Callable[[bytes], None]] = {
    "reference": _reference,
    "manifest": _manifest,
    "labels": _labels,
    "signature": _signature,
    "keyless": _keyless,
    "log-entry": _log_entry,
    "checkpoint": _checkpoint,
    "trusted-root": _trusted_root,
    "tar": _tar,
    "layer": _layer,
    "triton-group": _group,
    "vllm-index": _index,
    "config": config.parse,  # type: ignore[dict-item]  # what it returns is of no interest here
}


def quiet(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return the target with our own errors taken as answers; anything else is a finding."""

    def run(data: bytes) -> None:
        try:
            target(data)
        except OURS:
            return

    return run
