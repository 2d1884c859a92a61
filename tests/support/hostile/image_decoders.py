"""Decoders of what registries hold: images, their signatures and credentials."""

from functools import partial
from typing import Any

from gkm.api import json_limits
from gkm.images import cache, cache_entries, cache_mounts, configuration, manifest
from gkm.images.archives import docker_archive, layout_store, oci_layout
from gkm.images.captured import statement
from gkm.images.configuration import MAX_CONFIG_BYTES
from gkm.images.manifest import MAX_MANIFEST_BYTES, Manifest
from gkm.images.pulling import extract
from gkm.images.registries import auth, credentials, registry
from gkm.images.signatures import bundles, entry_body, log_entries, trust_material
from gkm.images.signatures import discovery as found
from gkm.images.signatures import signature_formats as parsing
from gkm.images.signatures.attestations import MAX_ATTESTATION_BYTES, MAX_REQUIRED_BYTES
from gkm.images.signing import ambient, keyless, keys, store
from support.hostile.decoder import MIB, Decoder


def _image_decoder(name: str, kind: Any, limit: int) -> Decoder:  # noqa: ANN401 -- any type
    return Decoder(name, lambda text: manifest.decode(text, kind, "it"), kind, limit)


IMAGES = (
    Decoder(
        "image manifest", lambda text: Manifest.from_bytes(text, "").image(), manifest.ImageManifest, MAX_MANIFEST_BYTES
    ),
    Decoder("index", lambda text: Manifest.from_bytes(text, "").index(), manifest.ImageIndex, MAX_MANIFEST_BYTES),
    Decoder("referrers", partial(manifest.parse_referrers, name="x"), manifest._Referrers, registry.MAX_REFERRER_BYTES),
    Decoder("configuration", partial(configuration.read_config, name="x"), configuration.ImageConfig, MAX_CONFIG_BYTES),
    Decoder("cache manifest", cache_entries.entries_in, cache_entries._Manifest, extract.MAX_MANIFEST_BYTES),
    _image_decoder("summary label", cache._Summary, MAX_CONFIG_BYTES),
    _image_decoder("label of further trees", cache_mounts.CacheMounts, cache_mounts.MAX_LABEL),
    _image_decoder("listing of docker's archive", list[docker_archive.ManifestEntry], docker_archive.MAX_LISTING_BYTES),
    _image_decoder("configuration of docker's archive", docker_archive._Config, MAX_CONFIG_BYTES),
    _image_decoder("mark of a layout", oci_layout._LayoutFile, oci_layout.MAX_LAYOUT_FILE_BYTES),
    _image_decoder("index that is written back", dict[str, Any], MAX_MANIFEST_BYTES),
    _image_decoder("kind of a manifest", layout_store._Stated, MAX_MANIFEST_BYTES),
    _image_decoder("tags", registry._Tags, registry.MAX_TAG_BYTES),
    _image_decoder("token", auth._Token, auth.MAX_TOKEN_BYTES),
    Decoder("docker config", credentials.parse, credentials._File, credentials.MAX_CONFIG_BYTES),
    Decoder(".dockercfg", credentials.parse, dict[str, credentials._Entry], credentials.MAX_CONFIG_BYTES),
    Decoder("statement about captured files", statement.states_in, statement._CaptureStatement, MAX_ATTESTATION_BYTES),
    _image_decoder("legacy tag", store._Layers, MAX_MANIFEST_BYTES),
    _image_decoder("fallback tag", store._Index, MAX_MANIFEST_BYTES),
)
SIGNATURES = (
    Decoder("bundle", parsing.parse_bundle, bundles.Bundle, found.MAX_PAYLOAD_BYTES),
    Decoder(
        "simple signing",
        lambda text: parsing.parse_legacy(text, {parsing.SIGNATURE_ANNOTATION: "YQ=="}),
        parsing._SimpleSigning,
        found.MAX_PAYLOAD_BYTES,
    ),
    _image_decoder("statement", parsing._Statement, found.MAX_PAYLOAD_BYTES),
    Decoder(
        "attestation",
        partial(parsing.parse_bundle, predicate_type="x", check=json_limits.check_predicate),
        bundles.Bundle,
        MAX_REQUIRED_BYTES,
    ),
    Decoder(
        "attested statement",
        partial(parsing._claims, predicate_type="x", check=json_limits.check_predicate),
        parsing._Statement,
        MAX_REQUIRED_BYTES,
    ),
    Decoder(
        "log entry of an annotation",
        lambda text: log_entries.from_annotation(text.decode()),
        log_entries._Annotation,
        log_entries.MAX_ANNOTATION,
    ),
    Decoder("answer of a log", log_entries.from_response, dict[str, log_entries._EntryResponse], MIB),
    Decoder("answers of a log", log_entries.from_responses, log_entries._EntryResponses, MIB),
    _image_decoder("kind of a log entry", log_entries._Kind, found.MAX_PAYLOAD_BYTES),
    *(
        _image_decoder(f"log entry {kind.__name__}", kind, found.MAX_PAYLOAD_BYTES)
        for kind in (entry_body._Body, entry_body._Hashed, entry_body._DSSE, entry_body._Spec2)
    ),
    Decoder(
        "trusted root", partial(trust_material.parse, what="x"), trust_material._Root, trust_material.MAX_ROOT_BYTES
    ),
    _image_decoder("answer of Fulcio", keyless._CertificateResponse, MIB),
    _image_decoder("answer of GitHub", ambient._GitHubToken, MIB),
    _image_decoder("encrypted key", keys._Encrypted, MIB),
)
