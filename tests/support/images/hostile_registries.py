"""Hostile rows, classes 1, 2, 3 and 8: hostile responses of a registry, and false claims of an image."""

import json

from gkm.api.errors import Reason
from gkm.images.manifest import DOCKER_MANIFEST, MAX_LAYERS, OCI_INDEX, OCI_MANIFEST
from support.images.archives import image_of_layers
from support.images.hostile_places import (
    blob,
    changed,
    crowded,
    described,
    escaping,
    foreign,
    index_in_index,
    labels,
    locked,
    logged,
    pinned,
    raw,
    redirected,
    spoilt,
    swapped,
    unsigned,
    zeroed,
)
from support.images.hostile_row import AWAY, DAMAGED, INVALID, LARGE, MIB, UNSAFE, WRONG, Row
from support.images.hostile_scene import GOOD, REPOSITORY
from support.registry import faults
from support.sigstore.key_signatures import Flaw, SigningKey
from support.sigstore.keyless import Flaw as LoggedFlaw

METADATA = "http://169.254.169.254/latest/meta-data/iam"
DEEP = b'{"schemaVersion":2,"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

MANIFESTS = (
    Row("a manifest of 5 MiB", 1, raw(b'{"x":"' + b"x" * (5 * MIB) + b'"}'), LARGE, "4194304 bytes that are allowed"),
    Row("json that is nested deeply", 1, raw(DEEP), INVALID, "cannot be read"),
    Row("no json", 1, raw(b"\xff\xfe{"), INVALID, "cannot be read"),
    Row("65 layers", 1, lambda s: s.put(*[b"x%d" % n for n in range(MAX_LAYERS + 1)]), INVALID, "has 65 layers"),
    Row("70 referrers", 1, crowded, Reason.SIGNATURE_INVALID, "only the first 64 were read"),
    Row("a media type of no image", 1, raw(b"{}", "text/html"), INVALID, "'text/html', not an image"),
    Row("two media types", 1, changed(mediaType=DOCKER_MANIFEST), INVALID, "calls itself"),
    Row("an index that is an image too", 1, changed(mediaType=OCI_INDEX), INVALID, "calls itself"),
    Row("an index in an index", 1, index_in_index, INVALID, "is an index of images, not an image"),
    Row("an index for an escape sequence", 1, escaping, INVALID, "it has 'linux/\\x1b[2J'"),
    Row("an index of nothing", 1, lambda s: s.put_index(), INVALID, "is an index with 0 images"),
    Row(
        "an index of 10,000",
        1,
        lambda s: s.put_index(
            *[{"mediaType": OCI_MANIFEST, "digest": "sha256:" + "1" * 64, "size": n} for n in range(10_000)]
        ),
        INVALID,
        "is an index with 10000 images",
    ),
    Row(
        "a digest that is a path",
        1,
        described(digest="sha256:../../../../../../etc/passwd"),
        INVALID,
        "cannot be the name of a digest",
        "CVE-2024-3727",
        "a digest became a path below the store, and left it",
    ),
    Row(
        "a digest that is short",
        1,
        described(digest="sha256:" + "1" * 63),
        INVALID,
        "cannot be the name of a digest",
        "CVE-2024-3727",
        "an authenticated request for any path of the registry",
    ),
    Row("a config of 2 MiB", 1, lambda s: s.put(GOOD, labels={"x": "x" * (2 * MIB)}), LARGE, "1048576 are read"),
)
BYTES = (
    Row("a manifest that was changed", 2, spoilt(pinned(faults.tampered)), WRONG, "it was changed"),
    Row(
        "a config that was changed", 2, spoilt(lambda s: faults.tampered(f"blobs/{s.config}")), WRONG, "it was changed"
    ),
    Row("a layer that was changed", 2, spoilt(blob(faults.tampered)), WRONG, "it was changed"),
    Row("a layer that is longer", 2, spoilt(blob(faults.overlong)), WRONG, "longer than its manifest says"),
    Row("a length that is too short", 2, spoilt(blob(faults.wrong_length, 100)), WRONG, "its manifest says"),
    Row("a size that is too small", 2, described(size=100), WRONG, "longer than its manifest says"),
    Row("a size that is too large", 2, described(size=len(GOOD) + 1), WRONG, "its manifest says"),
    Row("a size that is negative", 2, described(size=-1), INVALID, "is negative"),
    Row("a size of 2**80", 2, described(size=2**80), INVALID, "more than any disk has"),
    Row("a size of an exabyte", 2, described(size=10**18), LARGE, "store.maxImageBytes"),
    Row("a layer that is cut", 2, spoilt(blob(faults.truncated, 0)), AWAY, "broke off"),
    Row(
        "a layer that is cut without a length",
        2,
        spoilt(blob(faults.without_length, cut_after=100)),
        WRONG,
        "its manifest says",
    ),
    Row("an encoding nobody asked for", 2, spoilt(blob(faults.content_encoded)), UNSAFE, "Content-Encoding"),
    Row("an encoding of the manifest", 2, spoilt(pinned(faults.content_encoded)), UNSAFE, "Content-Encoding"),
)
PLACES = (
    Row(
        "a realm on another host",
        3,
        locked(lambda s: f"{s.other.url}/token"),
        Reason.NOT_ALLOWED,
        "authHosts",
        "CVE-2026-48978",
        "credentials were sent to whatever host the realm named",
    ),
    Row(
        "a realm that is the cloud's metadata",
        3,
        locked(lambda _: METADATA),
        Reason.NOT_ALLOWED,
        "169.254.169.254",
        "CVE-2026-48978",
        "the client asked hosts that only it can reach",
    ),
    Row(
        "a realm without tls",
        3,
        locked(lambda s: f"http://{s.real.host}/token"),
        Reason.NOT_ALLOWED,
        "authHosts",
        "CVE-2026-48978",
        "credentials went over the wire in clear",
        tls=True,
    ),
    Row("a realm that is no address", 3, locked(lambda _: "http://[::1/"), Reason.NOT_ALLOWED, "authHosts"),
    Row(
        "a redirect to another port with credentials",
        3,
        redirected,
        Reason.NOT_ALLOWED,
        "redirects to 127.0.0.1",
        "GHSA-vh4v-2xq2-g5cg",
        "Authorization followed a redirect to another origin of the same host",
    ),
    Row(
        "a foreign layer with urls",
        3,
        foreign,
        Reason.NOT_FOUND,
        "does not exist",
        "CVE-2020-15157",
        "the urls of a foreign layer were fetched, and credentials went to their host",
    ),
    Row(
        "a redirect to the cloud's metadata",
        3,
        spoilt(blob(faults.redirected, METADATA)),
        Reason.NOT_ALLOWED,
        "169.254.169.254",
    ),
    Row(
        "a redirect to a file",
        3,
        spoilt(blob(faults.redirected, "file:///etc/passwd")),
        Reason.NOT_ALLOWED,
        "not http or https",
    ),
    Row(
        "a redirect without tls",
        3,
        spoilt(blob(faults.redirected, "http://registry.example/x")),
        Reason.NOT_ALLOWED,
        "redirects from https to",
        tls=True,
    ),
    Row(
        "a redirect in a circle",
        3,
        spoilt(lambda s: faults.redirected(s.layers[0], f"/v2/{REPOSITORY}/blobs/{s.layers[0]}")),
        AWAY,
        "redirected more than",
    ),
)
CLAIMS = (
    Row("a size in a label", 8, labels(cache_size_bytes="4"), DAMAGED, "claims a cache of 4 bytes"),
    Row("a size of a thousand digits", 8, labels(cache_size_bytes="9" * 1000), INVALID, "not a number"),
    Row(
        "a label that is a command",
        8,
        labels(summary=json.dumps({"targets": [{"backend": "binary:///bin/sh", "arch": "-c;id", "warp_size": 32}]})),
        INVALID,
        "states an invalid GPU",
        "CVE-2026-53488",
        "a label of the image became a command of root",
    ),
    Row(
        "a label that is a path",
        8,
        labels(entry_count="../../../etc/passwd"),
        INVALID,
        "not a number",
        "CVE-2026-53488",
        "a label of the image was believed",
    ),
    Row("a label that is an escape sequence", 8, labels(entry_count="\x1b]0;evil\x07"), INVALID, "not a number"),
    Row(
        "10,000 targets",
        8,
        labels(
            summary=json.dumps(
                {"targets": [{"backend": "cuda", "arch": str(n), "warp_size": 32} for n in range(10_000)]}
            )
        ),
        INVALID,
        "values that a text of",
    ),
    Row(
        "300 targets",
        8,
        labels(
            summary=json.dumps({"targets": [{"backend": "cuda", "arch": str(n), "warp_size": 32} for n in range(300)]})
        ),
        INVALID,
        "names 300 targets",
    ),
    Row("a label that is nested deeply", 8, labels(summary="[" * 100_000), INVALID, "cannot be read"),
    Row(
        "no label",
        8,
        lambda s: s.put_image(image_of_layers(GOOD), config=s.target.blob(b"{}")),
        Reason.METADATA_MISSING,
        "no cache image",
    ),
    Row("another key", 8, unsigned(Flaw.NONE, SigningKey()), Reason.SIGNATURE_INVALID, "not made by a trusted key"),
    Row(
        "a signature of another image",
        8,
        unsigned(Flaw.OTHER_SUBJECT),
        Reason.SIGNATURE_INVALID,
        "it signs another image",
    ),
    Row(
        "a signature that was changed",
        8,
        unsigned(Flaw.FLIPPED_SIGNATURE),
        Reason.SIGNATURE_INVALID,
        "was changed since",
    ),
    Row(
        "an attestation in place of a signature", 8, unsigned(Flaw.OTHER_TYPE), Reason.SIGNATURE_INVALID, "not an image"
    ),
    Row(
        "the signature of a signed image on an unsigned one",
        8,
        swapped,
        Reason.SIGNATURE_INVALID,
        "it signs another image",
    ),
    Row(
        "a log entry of another signature",
        8,
        logged("legacy"),
        Reason.SIGNATURE_INVALID,
        "about another signature",
        "CVE-2022-36056",
        "a bundle passed with a log entry that was not about its signature",
    ),
    Row(
        "a log entry of another signature in a bundle",
        8,
        logged("bundle"),
        Reason.SIGNATURE_INVALID,
        "about another signature",
        "CVE-2026-22703",
        "any good log entry made a signature count as logged",
    ),
    Row(
        "no log entry where one is wanted",
        8,
        logged("bundle", LoggedFlaw.NO_ENTRY),
        Reason.SIGNATURE_INVALID,
        "no log entry",
    ),
    Row(
        "index 0 of a tree that it is not in", 8, zeroed, Reason.SIGNATURE_INVALID, "checkpoint belongs to another tree"
    ),
)
