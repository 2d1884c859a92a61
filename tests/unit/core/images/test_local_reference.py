"""References to layouts and archives, in the grammar of containers-transports(5)."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images import local_reference
from gkm.images.local_reference import LocalReference
from gkm.images.reference import Reference

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci:lay", LocalReference("oci", "lay")),
        ("oci:./a/lay:1.0", LocalReference("oci", "./a/lay", "1.0")),
        (f"oci:/lay@sha256:{HEX}", LocalReference("oci", "/lay", None, f"sha256:{HEX}")),
        (f"oci:/lay:a@sha256:{HEX}", LocalReference("oci", "/lay", "a", f"sha256:{HEX}")),
        (f"oci:/lay:sha256-{HEX}.sig", LocalReference("oci", "/lay", f"sha256-{HEX}.sig")),
        ("docker-archive:x.tar:r.example:5000/a:1", LocalReference("docker-archive", "x.tar", "r.example:5000/a:1")),
        ("r.example/oci:1", Reference("r.example", "oci", "1")),
        ("ocix:1", Reference("docker.io", "library/ocix", "1")),
    ],
)
def test_a_text_is_parsed_once_and_prints_as_it_was(text: str, expected: Reference) -> None:
    found = local_reference.parse(text)
    assert (type(found), found) == (type(expected), expected)
    assert local_reference.parse(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["oci:", "oci::1", "oci:a:", "oci:a:b c", "oci:a\nb", "oci:a@sha256:../..", "docker-archive:", f"oci:{'a' * 5000}"],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(GKMError, match="its path or tag cannot be one") as caught:
        local_reference.parse(text)
    assert caught.value.reason is Reason.INVALID_REFERENCE


def test_other_references_of_a_layout_stay_in_it() -> None:
    ref = LocalReference("oci", "lay", "1")
    pinned = ref.pinned(f"sha256:{HEX}")
    assert (str(pinned), str(pinned.tag_of_digest(".sig"))) == (f"oci:lay@sha256:{HEX}", f"oci:lay:sha256-{HEX}.sig")
    assert pinned.in_repository("r.example/signatures") is pinned
    assert (ref.path, ref.identity) == (Path("lay"), "")
