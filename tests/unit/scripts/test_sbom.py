"""The SBOM of an image, read and judged by the SPDX project's own tools."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from releasing import contents, sbom
from releasing.contents import DebianPackage, Distribution
from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

DIGEST, BASE = "a" * 64, "b" * 64
SUBJECT = sbom.Subject(
    "gkm-agent",
    "1.2.3",
    "linux/arm64",
    f"sha256:{DIGEST}",
    f"python:3.11-slim-bookworm@sha256:{BASE}",
    "",
    "2026-01-02T03:04:05Z",
)
OWN = Distribution("gkm", "1.2.3", "Apache-2.0")
LIBC = DebianPackage("libc6", "2.36-9+deb12u10", "arm64")


def problems(document: dict[str, Any]) -> list[str]:
    parser: Any = JsonLikeDictParser
    parsed = parser().parse(json.loads(json.dumps(document)))
    return [found.validation_message for found in validate_full_spdx_document(parsed)]


def by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {package["name"]: package for package in document["packages"]}


def purls(package: dict[str, Any]) -> list[str]:
    return [each["referenceLocator"] for each in package["externalRefs"]]


def test_it_names_the_image_its_base_and_what_is_in_both() -> None:
    document = sbom.document(SUBJECT, [OWN, Distribution("urllib3", "2.8.0", "MIT")], [LIBC])
    assert problems(document) == []
    found = by_name(document)
    assert found.keys() == {"gkm-agent", "python", "gkm", "urllib3", "libc6"}
    assert purls(found["gkm-agent"]) == [f"pkg:oci/gkm-agent@sha256%3A{DIGEST}"]
    assert purls(found["python"]) == [f"pkg:oci/python@sha256%3A{BASE}"]
    assert purls(found["urllib3"]) == ["pkg:pypi/urllib3@2.8.0"]
    assert purls(found["libc6"]) == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=arm64"]
    related = {
        (each["spdxElementId"], each["relationshipType"], each["relatedSpdxElement"])
        for each in document["relationships"]
    }
    assert ("SPDXRef-image-gkm-agent", "CONTAINS", "SPDXRef-python-urllib3") in related
    assert ("SPDXRef-base-python", "CONTAINS", "SPDXRef-debian-libc6-arm64") in related


@pytest.mark.parametrize(
    ("declared", "stated"),
    [
        ("MIT", "MIT"),
        ("Apache-2.0 OR BSD-3-Clause", "Apache-2.0 OR BSD-3-Clause"),
        ("", "NOASSERTION"),
        ("see LICENSE.txt", "NOASSERTION"),
        ("MIT\nX", "NOASSERTION"),
    ],
)
def test_a_license_that_is_no_expression_is_not_repeated(declared: str, stated: str) -> None:
    found = by_name(sbom.document(SUBJECT, [Distribution("x", "1", declared)], []))
    assert found["x"]["licenseDeclared"] == stated


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)


@given(
    st.lists(st.builds(DebianPackage, NAMES, NAMES, st.just("amd64")), max_size=4, unique_by=lambda p: p.name.lower())
)
def test_any_package_gives_a_valid_document(packages: list[DebianPackage]) -> None:
    document = sbom.document(SUBJECT, [OWN], packages)
    identities = [package["SPDXID"] for package in document["packages"]]
    assert problems(document) == [] or len(set(identities)) < len(identities)


def test_the_same_contents_give_the_same_document() -> None:
    assert sbom.document(SUBJECT, [OWN], [LIBC]) == sbom.document(SUBJECT, [OWN], [LIBC])


def test_a_status_file_of_dpkg_lists_what_is_installed() -> None:
    text = (
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n"
        "Description: C\n library\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    )
    assert contents.debian_packages(text) == [DebianPackage("libc6", "2.36-9", "amd64")]


def test_a_distribution_has_its_normal_name() -> None:
    assert contents.distribution("Metadata-Version: 2.4\nName: Google_RE2\nVersion: 1.1\n\nName: no\n") == Distribution(
        "google-re2", "1.1"
    )


LOCK = contents.locked(
    "urllib3==2.8.0 \\\n    --hash=sha256:x\nNumPy==2.4.6 ; python < '3.12' \\\nnumpy==2.5.5 ; other\n"
)


def test_what_the_lock_and_our_wheel_give_is_allowed() -> None:
    contents.check_locked([OWN, Distribution("numpy", "2.5.5"), Distribution("urllib3", "2.8.0")], LOCK, "1.2.3")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([OWN, Distribution("urllib3", "2.8.1")], "installed and not locked: urllib3 2.8.1"),
        ([OWN, Distribution("evil", "2.8.0")], "installed and not locked: evil 2.8.0"),
        ([Distribution("gkm", "1.2.4")], "installed and not locked: gkm 1.2.4"),
        ([Distribution("urllib3", "2.8.0")], "our own wheel is not installed"),
    ],
    ids=["version", "name", "ours", "none of ours"],
)
def test_anything_else_is_refused(found: list[Distribution], problem: str) -> None:
    with pytest.raises(contents.NotLocked, match=problem):
        contents.check_locked(found, LOCK, "1.2.3")


@pytest.mark.parametrize("process", ["agent", "csi", "operator"])
def test_the_real_locks_are_read(process: str) -> None:
    text = (Path(__file__).resolve().parents[3] / "requirements" / f"{process}.lock").read_text()
    assert len(contents.locked(text)) == sum("==" in line and line[0].isalnum() for line in text.splitlines()) > 2
