"""Real cosign 3 and 2 reach the verdicts of GKM on the rows of the matrix, and GKM accepts their signatures."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy
from support.images import matrix_periods as periods
from support.images.matrix import ACCEPTED, LAYER, REFUSED, Ground, Row, verdict_on
from support.peers import require
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.cosign import PLAIN, Cosign
from support.sigstore.http_services import SigstoreServer, token
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore

ALICE = Person()
START = "start-time=2024-01-01T00:00:00Z,operator=testbed"


@pytest.fixture(scope="module")
def server() -> Iterator[SigstoreServer]:
    with SigstoreServer.start(Sigstore()) as server:
        yield server


@pytest.fixture(scope="module", params=["cosign", "cosign2"])
def signer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    require.peer(request.param)
    return Cosign.create(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(params=["olareg", "distribution", "fallback tag"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "fallback tag":
        yield str(request.getfixturevalue(request.param).host)
        return
    with Registry.start(referrers=False) as registry:
        yield registry.host


@pytest.mark.parametrize("row", [*ACCEPTED, *REFUSED, *periods.ROWS], ids=str)
def test_cosign_and_gkm_reach_the_same_verdict(
    row: Row, signer: Cosign, host: str, server: SigstoreServer, tmp_path: Path
) -> None:
    target = Target(host, f"matrix/{signer.command}-{row.repository}")
    ground = Ground.prepared(target, server.sigstore, tmp_path)
    row.place(ground, row)
    assert ground.accepted(row) is row.accepted
    assert signer.accepts(ground.image, arguments(row, ground, tmp_path), bundle=row.form == "bundle") is (
        row.accepted or row.stricter
    )


def arguments(row: Row, ground: Ground, directory: Path) -> list[str]:
    if row.wants == "key":
        path = directory / "key.pub"
        path.write_bytes(ground.key.public_pem)
        who = ["--key", str(path)]
    else:
        who = ["--certificate-identity", ALICE.subject, "--certificate-oidc-issuer", ALICE.issuer]
    log = [] if row.log else ["--insecure-ignore-tlog=true"]
    stamped = ["--use-signed-timestamps"] if row.stamped else []
    offline = ["--offline"] if row.form == "legacy" else []
    return [*who, *log, *stamped, *offline, "--trusted-root", str(ground.root)]


def unsigned(host: str, name: str) -> str:
    target = Target(host, f"signed/{name}")
    return f"{target}@{target.image([(name.encode(), LAYER)])}"


@pytest.mark.parametrize("tlog", ["ignored", "required"])
@pytest.mark.parametrize("form", ["legacy", "bundle"])
def test_a_signature_of_cosign_by_key_is_accepted(  # noqa: PLR0917 -- fixtures and columns
    signer: Cosign, host: str, server: SigstoreServer, tmp_path: Path, form: str, tlog: str
) -> None:
    image = unsigned(host, f"{signer.command}-key-{form}-{tlog}")
    sign(signer, image, server, form, ["--key", str(signer.private_key)], logged=tlog == "required", at=tmp_path)
    root = str(server.sigstore.write_trusted_root(tmp_path))
    policy = Policy([str(signer.public_key)], tlog=tlog, trusted_root=root)  # type: ignore[arg-type]
    verdict = verdict_on(image, policy)
    assert (verdict.verified, [finding.form.partition("-")[0] for finding in verdict.findings]) == (True, [form])


@pytest.mark.parametrize("form", ["legacy", "bundle"])
def test_a_keyless_signature_of_cosign_is_accepted(
    signer: Cosign, host: str, server: SigstoreServer, tmp_path: Path, form: str
) -> None:
    image = unsigned(host, f"{signer.command}-keyless-{form}")
    sign(signer, image, server, form, ["--identity-token", token(ALICE)], logged=True, at=tmp_path)
    root = str(server.sigstore.write_trusted_root(tmp_path))
    verdict = verdict_on(image, Policy(identities=[Identity(ALICE.issuer, ALICE.subject)], trusted_root=root))
    assert verdict.verified, verdict.message
    assert [(f.form.partition("-")[0], f.signer.identity) for f in verdict.findings] == [(form, ALICE.subject)]
    stranger = verdict_on(image, Policy(identities=[Identity(ALICE.issuer, "bob@example.test")], trusted_root=root))
    assert (stranger.verified, stranger.reason) == (False, "IdentityMismatch")


def sign(
    signer: Cosign, image: str, server: SigstoreServer, form: str, who: list[str], *, logged: bool, at: Path
) -> None:
    flags = [f"--new-bundle-format={str(form == 'bundle').lower()}"]
    if form == "bundle":
        config = at / "signing.json"
        services = [f"--{name}=url={server.url},api-version=1,{START}" for name in ("fulcio", "rekor")]
        services.append("--rekor-config=ANY")
        signer.run("signing-config", "create", "--out", str(config), *(services if logged else []))
        flags += ["--signing-config", str(config)]
        flags += ["--trusted-root", str(server.sigstore.write_trusted_root(at))]
    else:
        flags += ["--use-signing-config=false", f"--tlog-upload={str(logged).lower()}"]
        flags += ["--fulcio-url", server.url, "--rekor-url", server.url]
    environment = server.environment(at)
    signer.run("sign", *who, *flags, *PLAIN, "--yes", image, environment=environment)
