"""The types of attestations: URIs, and the short names that cosign has for some of them. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from gkm_cli.output import UsageError

SHORT: Final[Mapping[str, str]] = {
    "custom": "https://cosign.sigstore.dev/attestation/v1",
    "slsaprovenance": "https://slsa.dev/provenance/v0.2",
    "slsaprovenance02": "https://slsa.dev/provenance/v0.2",
    "slsaprovenance1": "https://slsa.dev/provenance/v1",
    "spdx": "https://spdx.dev/Document",
    "spdxjson": "https://spdx.dev/Document",
    "cyclonedx": "https://cyclonedx.org/bom",
    "link": "https://in-toto.io/Link/v1",
    "vuln": "https://cosign.sigstore.dev/attestation/vuln/v1",
    "openvex": "https://openvex.dev/ns",
}
"""Source: cosign 3.1, cmd/cosign/cli/options/predicate.go (PredicateTypeMap)."""


def predicate_type(given: str, option: str) -> str:
    """Return the predicate type, a URI, that the value of an option means.

    Raises:
        UsageError: it is no short name and no URI.
    """
    if given in SHORT:
        return SHORT[given]
    if not urlsplit(given).scheme:
        raise UsageError(
            f"{option} {given[:200]} is no URI and no short name", f"the short names are {', '.join(SHORT)}"
        )
    return given
