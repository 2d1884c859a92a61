"""The trusted root from a TUF repository: verified, copied, and refused when the repository's roots did not sign it."""

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import locks
from gkm_cli import trusted_roots
from gkm_cli.output import CommandFailed, UsageError
from gkm_cli.trusted_roots import PUBLIC_MIRROR, _first_root, trusted_root
from securesystemslib.signer import CryptoSigner
from support.cli.command import gkm
from support.host.waiting import scaled
from support.registry.server import Registry
from support.sigstore.http_services import SigstoreServer, token
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore
from support.sigstore.tuf_repository import TufRepository, tuf_repository

FIRST, SECOND = b'{"first": 1}', b'{"second": 2}'


@pytest.fixture
def repository() -> Iterator[TufRepository]:
    with tuf_repository(FIRST) as made:
        yield made


@pytest.fixture
def environment(repository: TufRepository, tmp_path: Path) -> dict[str, str]:
    first = tmp_path / "root.json"
    first.write_bytes(repository.root)
    return {"TUF_MIRROR": repository.url, "TUF_ROOT_JSON": str(first), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def age(environment: dict[str, str], days: float) -> None:
    """Let the last refresh be some days ago."""
    (stamp,) = Path(environment["XDG_CACHE_HOME"]).rglob("refreshed")
    then = stamp.stat().st_mtime - days * 86_400
    os.utime(stamp, (then, then))


def test_it_is_fetched_once_a_day_and_then_followed(repository: TufRepository, environment: dict[str, str]) -> None:
    assert trusted_root(environment).read_bytes() == FIRST
    repository.asked.clear()
    repository.publish(SECOND)
    assert trusted_root(environment).read_bytes() == FIRST
    assert repository.asked == []
    age(environment, 1.5)
    assert trusted_root(environment).read_bytes() == SECOND


def test_concurrent_first_uses_fetch_it_once(repository: TufRepository, environment: dict[str, str]) -> None:
    start = threading.Barrier(4)

    def use() -> bytes:
        start.wait(scaled(60))
        return trusted_root(environment).read_bytes()

    with ThreadPoolExecutor(4) as threads:
        assert [found.result(scaled(60)) for found in [threads.submit(use) for _ in range(4)]] == [FIRST] * 4
    assert len([path for path in repository.asked if path.endswith("timestamp.json")]) == 1


@pytest.mark.usefixtures("repository")
def test_a_directory_that_cannot_be_written_is_named_with_the_option(environment: dict[str, str]) -> None:
    Path(environment["XDG_CACHE_HOME"]).write_text("a file")
    with pytest.raises(CommandFailed, match=r"cannot be stored in .*/tuf/.*--trusted-root"):
        trusted_root(environment)


@pytest.mark.usefixtures("repository")
def test_a_process_that_holds_the_copy_for_too_long_is_not_waited_for(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = trusted_root(environment)
    monkeypatch.setattr(trusted_roots, "TOTAL_SECONDS", 0.2)
    age(environment, 2)
    with locks.process_lock(copy.parent.parent / "lock"):
        assert trusted_root(environment) == copy
        copy.unlink()
        with pytest.raises(CommandFailed, match="another process"):
            trusted_root(environment)


def test_without_a_network_the_copy_holds_until_its_signature_expires(
    repository: TufRepository, environment: dict[str, str]
) -> None:
    trusted_root(environment)
    age(environment, 2)
    repository.away = True
    assert trusted_root(environment).read_bytes() == FIRST
    repository.away = False
    repository.publish(SECOND, days=-1)
    with pytest.raises(GKMError) as expired:
        trusted_root(environment)
    assert expired.value.reason is Reason.SIGNATURE_INVALID
    repository.away = True
    (timestamp,) = Path(environment["XDG_CACHE_HOME"]).rglob("timestamp.json")
    timestamp.unlink()
    with pytest.raises(GKMError) as gone:
        trusted_root(environment)
    assert gone.value.reason is Reason.REGISTRY_UNAVAILABLE
    assert "--trusted-root" in str(gone.value.hint)


@pytest.mark.parametrize("role", ["timestamp", "targets"])
def test_without_a_network_a_copy_that_has_expired_is_none(
    repository: TufRepository, environment: dict[str, str], role: str
) -> None:
    trusted_root(environment)
    (stored,) = Path(environment["XDG_CACHE_HOME"]).rglob(f"metadata/{role}.json")
    metadata = json.loads(stored.read_bytes())
    metadata["signed"]["expires"] = "2020-01-01T00:00:00Z"
    stored.write_text(json.dumps(metadata))
    repository.away = True
    with pytest.raises(GKMError) as expired:
        trusted_root(environment)
    assert expired.value.reason is Reason.REGISTRY_UNAVAILABLE


def test_what_another_key_signed_is_refused_and_the_copy_stays(
    repository: TufRepository, environment: dict[str, str]
) -> None:
    copy = trusted_root(environment)
    age(environment, 2)
    repository.publish(SECOND, signer=CryptoSigner.generate_ecdsa())
    with pytest.raises(GKMError) as forged:
        trusted_root(environment)
    assert forged.value.reason is Reason.SIGNATURE_INVALID
    assert copy.read_bytes() == FIRST


def test_changed_bytes_are_refused(repository: TufRepository, environment: dict[str, str]) -> None:
    (path,) = [path for path in repository.files if path.startswith("targets/")]
    repository.files[path] = FIRST.replace(b"1", b"2")
    with pytest.raises(GKMError) as changed:
        trusted_root(environment)
    assert changed.value.reason is Reason.SIGNATURE_INVALID
    repository.files[path] = b"x" * (2 << 20)
    with pytest.raises(GKMError) as endless:
        trusted_root(environment)
    assert endless.value.reason is Reason.REGISTRY_UNAVAILABLE


def test_a_copy_that_was_changed_is_fetched_again(repository: TufRepository, environment: dict[str, str]) -> None:
    trusted_root(environment).write_bytes(SECOND)
    assert trusted_root(environment).read_bytes() == FIRST
    assert repository.asked


def test_an_older_version_is_refused(repository: TufRepository, environment: dict[str, str]) -> None:
    older = dict(repository.files)
    repository.publish(SECOND)
    trusted_root(environment)
    age(environment, 2)
    repository.files = older
    with pytest.raises(GKMError) as rolled_back:
        trusted_root(environment)
    assert rolled_back.value.reason is Reason.SIGNATURE_INVALID


def test_the_first_root_of_the_public_sigstore_is_installed() -> None:
    assert b'"root"' in _first_root(PUBLIC_MIRROR, {})
    assert resources.files("sigstore").joinpath("_store").is_dir()
    with pytest.raises(UsageError, match="TUF_ROOT_JSON"):
        trusted_root({"TUF_MIRROR": "https://tuf.example", "HOME": "/nowhere"})


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "SIGSTORE_ID_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("surroundings")
def test_a_pipeline_signs_and_anybody_verifies_without_naming_a_file(image: str, tmp_path: Path) -> None:
    person, sigstore = Person(), Sigstore()
    with SigstoreServer.start(sigstore) as server:
        root = sigstore.write_trusted_root(tmp_path)
        with tuf_repository(root.read_bytes()) as repository:
            first = tmp_path / "root.json"
            first.write_bytes(repository.root)
            tuf = {"TUF_MIRROR": repository.url, "TUF_ROOT_JSON": str(first), "XDG_CACHE_HOME": str(tmp_path / "cache")}
            environment = {**os.environ, **tuf, "SIGSTORE_ID_TOKEN": token(person)}
            services = ("--fulcio-url", server.url, "--rekor-url", server.url)
            signed = gkm("cache", "sign", image, *services, "--plain-http", env=environment)
            assert signed.returncode == 0, signed.stderr
            who = ("--identity", person.subject, "--issuer", person.issuer)
            verified = gkm("cache", "verify", image, *who, "--plain-http", env=environment)
            assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.usefixtures("surroundings")
def test_without_any_identity_signing_is_wrong_usage(image: str, registry_server: Registry) -> None:
    assert registry_server.host in image
    done = gkm("cache", "sign", image, "--plain-http")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--identity-token" in done.stderr
