"""The formats of a transparency log entry: in a bundle, in an annotation, in a response of Rekor. It verifies no entry.

Source: sigstore/protobuf-specs, sigstore_rekor.proto; cosign's specs/SIGNATURE_SPEC.md; sigstore/rekor, openapi.yaml.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode
from gkm.images.signatures import bundles
from gkm.images.signatures.bundles import LogEntry

MAX_ANNOTATION = 64 << 10
_Number = Annotated[int, Meta(ge=0, lt=10**18)]


class _Payload(Struct, rename="camel"):
    body: bytes
    integrated_time: int
    log_index: int
    log_id: str = field(name="logID")


class _Annotation(Struct, rename="pascal"):
    signed_entry_timestamp: bytes
    payload: _Payload


class _Proof(Struct, rename="camel"):
    checkpoint: str
    root_hash: str
    tree_size: _Number
    log_index: _Number
    hashes: Annotated[list[str], Meta(max_length=64)]


class _Verification(Struct, rename="camel"):
    signed_entry_timestamp: bytes
    inclusion_proof: _Proof | None = None


class _EntryResponse(Struct, rename="camel"):
    body: bytes
    integrated_time: _Number
    log_index: _Number
    verification: _Verification
    log_id: str = field(name="logID")


_EntryResponses = Annotated[list[Annotated[dict[str, _EntryResponse], Meta(max_length=1)]], Meta(max_length=16)]


class _Kind(Struct, rename="camel"):
    kind: str
    api_version: str


def from_annotation(annotation: str) -> LogEntry:
    """Parse the log entry in the annotation of a legacy signature.

    Raises:
        GKMError: METADATA_INVALID.
    """
    if len(annotation) > MAX_ANNOTATION:
        raise GKMError(
            Reason.METADATA_INVALID, f"the log entry of the signature has more than {MAX_ANNOTATION} characters"
        )
    bundle = decode(annotation.encode(), _Annotation, "log entry")
    return LogEntry(
        bundles.LogId(_unhex(bundle.payload.log_id, "id of a log")),
        bundles.KindVersion("", ""),
        bundle.payload.body,
        str(bundle.payload.log_index),
        str(bundle.payload.integrated_time),
        bundles.InclusionPromise(bundle.signed_entry_timestamp),
    )


def annotation(entry: LogEntry) -> str:
    """Return a Rekor 1 log entry in the form of an annotation of a legacy signature."""
    payload = _Payload(
        entry.canonicalized_body, int(entry.integrated_time), int(entry.log_index), entry.log_id.key_id.hex()
    )
    return msgspec.json.encode(_Annotation(entry.promise, payload)).decode()


def from_response(raw: bytes) -> LogEntry:
    """Parse the log entry in a response of Rekor 1, `{uuid: entry}`; raises as `from_annotation` does."""
    answer = decode(raw, dict[str, _EntryResponse], "answer of the log")
    if len(answer) != 1:
        raise GKMError(
            Reason.METADATA_INVALID, f"the transparency log answers with {len(answer)} entries instead of one"
        )
    return _from_entry_response(*answer.values())


def from_responses(raw: bytes) -> list[LogEntry]:
    """Parse a list of log entries in a response of Rekor 1; raises as `from_annotation` does."""
    answers = decode(raw, _EntryResponses, "answer of the log")
    return [_from_entry_response(entry) for answer in answers for entry in answer.values()]


def _from_entry_response(entry: _EntryResponse) -> LogEntry:
    kind = decode(entry.body, _Kind, "log entry")
    return LogEntry(
        bundles.LogId(_unhex(entry.log_id, "id of a log")),
        bundles.KindVersion(kind.kind, kind.api_version),
        entry.body,
        str(entry.log_index),
        str(entry.integrated_time),
        bundles.InclusionPromise(entry.verification.signed_entry_timestamp),
        _proof(entry.verification.inclusion_proof) if entry.verification.inclusion_proof else UNSET,
    )


def _proof(proof: _Proof) -> bundles.InclusionProof:
    return bundles.InclusionProof(
        str(proof.tree_size),
        _unhex(proof.root_hash, "root hash"),
        bundles.Checkpoint(proof.checkpoint),
        str(proof.log_index),
        [_unhex(text, "proof") for text in proof.hashes],
    )


def _unhex(text: str, what: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise GKMError(Reason.METADATA_INVALID, f"the {what} is not hexadecimal") from error
