"""The formats of a transparency log entry: in a bundle, in an annotation, in a response of Rekor. Nothing is verified.

Source: sigstore/protobuf-specs, sigstore_rekor.proto; cosign's specs/SIGNATURE_SPEC.md; sigstore/rekor, openapi.yaml.
"""

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode
from gkm.images.signatures import bundles
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.transparency import Proof, RekorEntry

MAX_ANNOTATION = 64 << 10
_Number = Annotated[int, Meta(ge=0, lt=10**18)]


class _Payload(Struct, rename="camel"):
    body: str
    integrated_time: int
    log_index: int
    log_id: str = field(name="logID")


class _Annotation(Struct, rename="pascal"):
    signed_entry_timestamp: str
    payload: _Payload


class _Proof(Struct, rename="camel"):
    checkpoint: str
    root_hash: str
    tree_size: _Number
    log_index: _Number
    hashes: Annotated[list[str], Meta(max_length=64)]


class _Verification(Struct, rename="camel"):
    signed_entry_timestamp: str
    inclusion_proof: _Proof | None = None


class _EntryResponse(Struct, rename="camel"):
    body: str
    integrated_time: _Number
    log_index: _Number
    verification: _Verification
    log_id: str = field(name="logID")


_EntryResponses = Annotated[list[Annotated[dict[str, _EntryResponse], Meta(max_length=1)]], Meta(max_length=16)]


class _Kind(Struct, rename="camel"):
    kind: str
    api_version: str


def from_bundle(entry: LogEntry) -> RekorEntry:
    """Return the entry in a bundle.

    Raises:
        GKMError: METADATA_INVALID.
    """
    proof = entry.inclusion_proof
    promise = entry.inclusion_promise
    return RekorEntry(
        unbase64(entry.log_id.key_id, "log's id"),
        int(entry.log_index),
        int(entry.integrated_time),
        unbase64(entry.canonicalized_body, "log entry"),
        unbase64(promise.signed_entry_timestamp, "log's signature") if promise else b"",
        Proof(
            int(proof.log_index),
            int(proof.tree_size),
            unbase64(proof.root_hash, "root hash"),
            tuple(unbase64(text, "proof") for text in proof.hashes),
            proof.checkpoint.envelope,
        )
        if proof
        else None,
    )


def from_annotation(annotation: str) -> RekorEntry:
    """Return the entry in the annotation of a legacy signature; raises as `from_bundle` does."""
    if len(annotation) > MAX_ANNOTATION:
        raise GKMError(Reason.METADATA_INVALID, f"its log entry has more than {MAX_ANNOTATION} characters")
    bundle = decode(annotation.encode(), _Annotation, "log entry")
    return RekorEntry(
        _unhex(bundle.payload.log_id, "id of a log"),
        bundle.payload.log_index,
        bundle.payload.integrated_time,
        unbase64(bundle.payload.body, "log entry"),
        unbase64(bundle.signed_entry_timestamp, "log's signature"),
    )


def annotation(entry: LogEntry) -> str:
    """Return an entry of Rekor 1 as the annotation of a legacy signature."""
    promise = entry.inclusion_promise
    payload = _Payload(
        entry.canonicalized_body,
        int(entry.integrated_time),
        int(entry.log_index),
        unbase64(entry.log_id.key_id, "log's id").hex(),
    )
    return msgspec.json.encode(_Annotation(promise.signed_entry_timestamp if promise else "", payload)).decode()


def from_response(raw: bytes) -> LogEntry:
    """Return the entry in a response of Rekor 1, `{uuid: entry}`; raises as `from_bundle` does."""
    answer = decode(raw, dict[str, _EntryResponse], "answer of the log")
    if len(answer) != 1:
        raise GKMError(Reason.METADATA_INVALID, f"the log answers with {len(answer)} entries instead of one")
    return _from_entry_response(*answer.values())


def from_responses(raw: bytes) -> list[LogEntry]:
    """Return the entries in a list of such responses; raises as `from_bundle` does."""
    answers = decode(raw, _EntryResponses, "answer of the log")
    return [_from_entry_response(entry) for answer in answers for entry in answer.values()]


def _from_entry_response(entry: _EntryResponse) -> LogEntry:
    proof = entry.verification.inclusion_proof
    kind = decode(unbase64(entry.body, "log entry"), _Kind, "log entry")
    log_entry = LogEntry(
        bundles.LogId(_base64(_unhex(entry.log_id, "id of a log"))),
        bundles.KindVersion(kind.kind, kind.api_version),
        entry.body,
        str(entry.log_index),
        str(entry.integrated_time),
        bundles.InclusionPromise(entry.verification.signed_entry_timestamp),
    )
    if proof:
        log_entry.inclusion_proof = bundles.InclusionProof(
            str(proof.tree_size),
            _base64(_unhex(proof.root_hash, "root hash")),
            bundles.Checkpoint(proof.checkpoint),
            str(proof.log_index),
            [_base64(_unhex(text, "proof")) for text in proof.hashes],
        )
    return log_entry


def unbase64(text: str, what: str) -> bytes:
    """Decode a base64 text of a signature; `what` names the text in errors.

    Raises:
        GKMError: METADATA_INVALID.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise GKMError(Reason.METADATA_INVALID, f"the {what} of a signature is not base64") from error


def _unhex(text: str, what: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise GKMError(Reason.METADATA_INVALID, f"the {what} is not hexadecimal") from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
