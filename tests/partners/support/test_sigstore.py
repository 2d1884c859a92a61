"""Real cosign accepts what our double signs, and refuses it when it is made wrong."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.cosign import Cosign, CosignFailed
from support.sigstore.key_signatures import Flaw, SigningKey, sign_bundle, sign_legacy

SIGNERS: dict[str, Callable[[Target, str, SigningKey, Flaw], str]] = {"legacy": sign_legacy, "bundle": sign_bundle}
COSIGN_ACCEPTS = {Flaw.NONE, Flaw.OTHER_TYPE}
"""cosign verify reads neither the payload's type nor the predicate's; we do."""


@pytest.fixture(params=["referrers", "fallback tag", "olareg"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    if request.param == "olareg":
        yield Target(request.getfixturevalue("olareg").host, "signed/by-python")
        return
    with Registry.start(referrers=request.param == "referrers") as registry:
        yield Target(registry.host, "signed/by-python")


@pytest.mark.parametrize("form", SIGNERS)
@pytest.mark.parametrize("flaw", Flaw, ids=lambda flaw: flaw.name)
def test_cosign_sees_what_is_wrong(registry: Registry, cosign: Cosign, tmp_path: Path, form: str, flaw: Flaw) -> None:
    target, key = Target(registry.host, "signed/by-python"), SigningKey()
    image = signed(target, key, form, flaw)
    if flaw in COSIGN_ACCEPTS:
        cosign.verify(image, key=written(tmp_path, key), legacy=form == "legacy")
    else:
        with pytest.raises(CosignFailed, match=r"no matching|no signatures"):
            cosign.verify(image, key=written(tmp_path, key), legacy=form == "legacy")


@pytest.mark.parametrize("form", SIGNERS)
def test_cosign_finds_ours_in_every_registry(target: Target, cosign: Cosign, tmp_path: Path, form: str) -> None:
    key = SigningKey()
    image = signed(target, key, form, Flaw.NONE)
    assert image.partition("@")[2] in cosign.verify(image, key=written(tmp_path, key), legacy=form == "legacy")


@pytest.mark.parametrize("form", SIGNERS)
def test_cosign_signs_and_verifies_in_every_registry(target: Target, cosign: Cosign, form: str) -> None:
    image = f"{target}@{target.image([(form.encode(), 'application/vnd.oci.image.layer.v1.tar')], tag=f'c-{form}')}"
    (cosign.sign_legacy if form == "legacy" else cosign.sign)(image)
    assert image.partition("@")[2] in cosign.verify(image, legacy=form == "legacy")


def test_cosign_refuses_an_image_without_signature(registry: Registry, cosign: Cosign) -> None:
    target = Target(registry.host, "unsigned")
    digest = target.image([(b"x", "application/vnd.oci.image.layer.v1.tar")])
    with pytest.raises(CosignFailed, match="no signatures"):
        cosign.verify(f"{target}@{digest}")


def signed(target: Target, key: SigningKey, form: str, flaw: Flaw) -> str:
    content = f"{form} {flaw} {key.hint}".encode()
    digest = target.image([(content, "application/vnd.oci.image.layer.v1.tar")], tag="v1")
    SIGNERS[form](target, digest, key, flaw)
    return f"{target}@{digest}"


def written(directory: Path, key: SigningKey) -> Path:
    path = directory / "key.pub"
    path.write_bytes(key.public_pem)
    return path
