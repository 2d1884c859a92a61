"""The bill of materials of one image, as SPDX 2.3 in JSON. Pure.

Source: SPDX specification 2.3, clauses 6, 7 and 11; purl-spec for the locators.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from releasing.contents import OWN, DebianPackage, Distribution

PREDICATE = "https://spdx.dev/Document/v2.3"
UNKNOWN = "NOASSERTION"
_LICENSE = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")
"""Plain expressions; one with parentheses or a license of its own is left to the reader of the distribution."""
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9.-]+")
Json = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """The image: its name, version and platform, the digest of its manifest, and the base with its digest."""

    name: str
    version: str
    platform: str
    digest: str
    base: str
    source: str
    created: str


def document(subject: Subject, distributions: Sequence[Distribution], packages: Sequence[DebianPackage]) -> Json:
    """Return the document; the same contents give the same document."""
    image = _package(
        f"image-{subject.name}", subject.name, subject.version, _oci(subject.name, subject.digest), "Apache-2.0"
    ) | {
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{"algorithm": "SHA256", "checksumValue": subject.digest.removeprefix("sha256:")}],
    }
    base_name, _, base_digest = subject.base.partition("@")
    base_short, _, tag = base_name.rpartition("/")[2].partition(":")
    base = _package(f"base-{base_short}", base_short, tag or UNKNOWN, _oci(base_short, base_digest))
    python = [
        _package(
            f"python-{each.name}",
            each.name,
            each.version,
            f"pkg:pypi/{each.name}@{quote(each.version)}" if each.name != OWN else "",
            each.license,
        )
        for each in distributions
    ]
    debian = [
        _package(
            f"debian-{each.name}-{each.architecture}",
            each.name,
            each.version,
            f"pkg:deb/debian/{quote(each.name)}@{quote(each.version)}?arch={each.architecture}",
        )
        for each in packages
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{subject.name}-{subject.version} {subject.platform}",
        # Unique by the digest, and no address that has to exist.
        "documentNamespace": f"https://gkm.io/spdx/{subject.name}-{subject.digest.removeprefix('sha256:')}",
        "creationInfo": {
            "created": subject.created,
            "creators": [f"Tool: gkm-release-{subject.version}", "Organization: GKM"],
        },
        "packages": [image, base, *python, *debian],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", image),
            _relation(image["SPDXID"], "DESCENDANT_OF", base),
            *(_relation(image["SPDXID"], "CONTAINS", each) for each in python),
            *(_relation(base["SPDXID"], "CONTAINS", each) for each in debian),
        ],
    }


def _package(identity: str, name: str, version: str, purl: str, declared: str = "") -> Json:
    locator = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
    return {
        "SPDXID": f"SPDXRef-{_NOT_AN_ID.sub('-', identity)}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": declared if _LICENSE.fullmatch(declared) else UNKNOWN,
        "copyrightText": UNKNOWN,
        "externalRefs": [locator] if purl else [],
    }


def _oci(name: str, digest: str) -> str:
    return f"pkg:oci/{name}@{quote(digest)}" if digest else f"pkg:oci/{name}"


def _relation(source: str, kind: str, target: Json) -> Json:
    return {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target["SPDXID"]}
