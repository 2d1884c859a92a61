"""The JSON form of a Sigstore bundle v0.3: the fields that verification uses, with their defaults.

GKM decodes a bundle once, into these types, and encodes it again from them for sigstore-python. So two parsers cannot
read two different bundles from the same bytes (a duplicate key, a field that only one parser knows). The encoded form
also holds the zero values that Go omits (`logIndex` 0, an empty list of hashes) and that sigstore-python requires.
Source: sigstore/protobuf-specs, sigstore_bundle.proto and sigstore_rekor.proto.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

BUNDLE_PREFIX = "application/vnd.dev.sigstore.bundle.v0.3+json"

_Number = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
"""protobuf's JSON writes a 64-bit number as a string."""
_Bytes = Annotated[bytes, Meta(max_length=256 << 10)]


class RawBytes(Struct, frozen=True, rename="camel"):
    """Bytes of a certificate or timestamp in a Sigstore bundle."""

    raw_bytes: _Bytes


class PublicKeyIdentifier(Struct):
    """The hint that a bundle gives about its key; verification does not use it."""

    hint: str = ""


class Checkpoint(Struct, frozen=True):
    """The signed root of a transparency log's Merkle tree."""

    envelope: Annotated[str, Meta(max_length=16 << 10)]


class InclusionProof(Struct, frozen=True, rename="camel"):
    """The proof that a log's tree of `tree_size` entries contains the entry with the number `log_index`."""

    tree_size: _Number
    root_hash: _Bytes
    checkpoint: Checkpoint
    log_index: _Number = "0"
    hashes: Annotated[list[_Bytes], Meta(max_length=64)] = field(default_factory=list)


class InclusionPromise(Struct, frozen=True, rename="camel"):
    """A transparency log's signature over an entry and its time."""

    signed_entry_timestamp: _Bytes


class LogId(Struct, frozen=True, rename="camel"):
    """The id of a transparency log."""

    key_id: _Bytes


class KindVersion(Struct, frozen=True):
    """The kind and version of a log entry's body."""

    kind: str
    version: str


class LogEntry(Struct, frozen=True, rename="camel"):
    """An entry of a transparency log. `integrated_time` is in seconds since 1970."""

    log_id: LogId
    kind_version: KindVersion
    canonicalized_body: _Bytes
    log_index: _Number = "0"
    integrated_time: _Number = "0"
    inclusion_promise: InclusionPromise | UnsetType = UNSET
    inclusion_proof: InclusionProof | UnsetType = UNSET

    @property
    def promise(self) -> bytes:
        """Return the log's signature over the entry and its time; b"" if absent."""
        return self.inclusion_promise.signed_entry_timestamp if self.inclusion_promise else b""


class SignedTimestamp(Struct, rename="camel"):
    """A timestamp token (RFC 3161) in a Sigstore bundle."""

    signed_timestamp: _Bytes


class TimestampVerificationData(Struct):
    """The timestamp tokens of a Sigstore bundle."""

    rfc3161_timestamps: Annotated[list[SignedTimestamp], Meta(max_length=8)] = field(
        default_factory=list, name="rfc3161Timestamps"
    )


class VerificationMaterial(Struct, rename="camel"):
    """The key or certificate, log entries and timestamps in a bundle that verify its signature."""

    public_key: PublicKeyIdentifier | UnsetType = UNSET
    certificate: RawBytes | UnsetType = UNSET
    tlog_entries: Annotated[list[LogEntry], Meta(max_length=16)] = field(default_factory=list)
    timestamp_verification_data: TimestampVerificationData | UnsetType = UNSET


class EnvelopeSignature(Struct):
    """One signature of a DSSE envelope."""

    sig: _Bytes


class DSSEEnvelope(Struct, rename="camel"):
    """A DSSE envelope. The reader of a bundle limits its bytes, and the payload with them: a statement can be large."""

    payload: bytes
    payload_type: str
    signatures: Annotated[list[EnvelopeSignature], Meta(max_length=16)]


class Bundle(Struct, rename="camel"):
    """A Sigstore bundle v0.3: a signature with its verification material."""

    media_type: str
    verification_material: VerificationMaterial
    dsse_envelope: DSSEEnvelope | UnsetType = UNSET
