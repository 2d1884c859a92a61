"""The shape of a Sigstore bundle v0.3, in protobuf's JSON: only what we use, and what is not there spelled out.

A bundle is read once, into these types, and written again from them for sigstore-python. So two readers cannot see two
different bundles in the same bytes (a key that stands twice, a field that one of them knows), and the zeros that Go
leaves out (`logIndex` 0, an empty list of hashes) are there, which sigstore-python demands.
Source: sigstore/protobuf-specs, sigstore_bundle.proto and sigstore_rekor.proto.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

BUNDLE_PREFIX = "application/vnd.dev.sigstore.bundle.v0.3+json"

_Number = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
"""A 64-bit number is text in protobuf's JSON."""
_Base64 = Annotated[str, Meta(max_length=256 << 10)]


class RawBytes(Struct, rename="camel"):
    """Bytes of a certificate or timestamp."""

    raw_bytes: _Base64


class PublicKeyIdentifier(Struct):
    """What a bundle says of the key: nothing that we rely on."""

    hint: str = ""


class Checkpoint(Struct):
    """A tree's root, signed."""

    envelope: Annotated[str, Meta(max_length=16 << 10)]


class InclusionProof(Struct, rename="camel"):
    """Where in the tree the entry is."""

    tree_size: _Number
    root_hash: _Base64
    checkpoint: Checkpoint
    log_index: _Number = "0"
    hashes: Annotated[list[_Base64], Meta(max_length=64)] = field(default_factory=list)


class InclusionPromise(Struct, rename="camel"):
    """The log's signature over entry and time."""

    signed_entry_timestamp: _Base64


class LogId(Struct, rename="camel"):
    """Which log."""

    key_id: _Base64


class KindVersion(Struct):
    """What the body is."""

    kind: str
    version: str


class LogEntry(Struct, rename="camel"):
    """An entry of a transparency log."""

    log_id: LogId
    kind_version: KindVersion
    canonicalized_body: _Base64
    log_index: _Number = "0"
    integrated_time: _Number = "0"
    inclusion_promise: InclusionPromise | UnsetType = UNSET
    inclusion_proof: InclusionProof | UnsetType = UNSET


class SignedTimestamp(Struct, rename="camel"):
    """A token of RFC 3161."""

    signed_timestamp: _Base64


class TimestampVerificationData(Struct):
    """Tokens of timestamp authorities."""

    rfc3161_timestamps: Annotated[list[SignedTimestamp], Meta(max_length=8)] = field(
        default_factory=list, name="rfc3161Timestamps"
    )


class VerificationMaterial(Struct, rename="camel"):
    """By what a signature can be checked."""

    public_key: PublicKeyIdentifier | UnsetType = UNSET
    certificate: RawBytes | UnsetType = UNSET
    tlog_entries: Annotated[list[LogEntry], Meta(max_length=16)] = field(default_factory=list)
    timestamp_verification_data: TimestampVerificationData | UnsetType = UNSET


class EnvelopeSignature(Struct):
    """One signature of an envelope."""

    sig: _Base64


class DSSEEnvelope(Struct, rename="camel"):
    """A DSSE envelope."""

    payload: _Base64
    payload_type: str
    signatures: Annotated[list[EnvelopeSignature], Meta(max_length=16)]


class Bundle(Struct, rename="camel"):
    """A bundle."""

    media_type: str
    verification_material: VerificationMaterial
    dsse_envelope: DSSEEnvelope | UnsetType = UNSET
