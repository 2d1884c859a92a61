"""The commands behind `make version`, `release`, `verify-release`, `publish` and `github-release`.

docs/reference/release.md has what they make and how to verify it.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError
from gkm.hoststate.escaping import escape
from gkm.images.registries.registry import Registry
from gkm.images.signing.forms import ImageSigner
from gkm_cli.credential_helpers import credentials_from_environment
from gkm_cli.signing import SigningOptions
from releasing import build as building
from releasing import contents, files, layout, manifests, provenance, sbom, signing, versions
from releasing.publishing import publish
from support.chart.helm import CHART, helm
from support.peers.missing import Missing

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "dist" / "release"
LOCKS = ROOT / "requirements"


def main() -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="release.py", description=__doc__)
    parser.add_argument("command", choices=("version", "build", "verify", "publish", "github"))
    parser.add_argument(
        "version", nargs="?", default=_stated(os.environ), help="such as 1.2.3; default: VERSION or TAG"
    )
    parser.add_argument("--base", default="", help="another base image; `local`: made of Debian packages")
    parser.add_argument("--platforms", default="", help="such as linux/amd64,linux/arm64; default: this machine's")
    parser.add_argument("--dirty", action="store_true", help="allow files that are not committed; for trials")
    parser.add_argument("--trial", action="store_true", help="accept what --dirty and --base built")
    parser.add_argument("--registry", default="", help="where to store images, such as registry.example/team")
    parser.add_argument("--key", default="", help="the private key that signs; default: the identity of this job")
    parser.add_argument("--plain-http", action="store_true", help="for a registry on this machine")
    options = parser.parse_args()
    commands = {"version": _version, "build": _build, "verify": _verify, "publish": _publish, "github": _github}
    try:
        versions.check(options.version)
        commands[options.command](options)
    except (versions.WrongVersion, contents.NotLocked, Missing, RuntimeError, GKMError, OSError) as problem:
        _say(f"error: {problem}")
        return 1
    except (ValueError, LookupError, subprocess.CalledProcessError) as problem:
        _say(f"error: {TARGET} cannot be used: {problem!r}")
        return 1
    return 0


def _stated(environment: Mapping[str, str]) -> str:
    return environment.get("VERSION") or environment.get("TAG", "").removeprefix("v")


def _version(options: argparse.Namespace) -> None:
    versions.state(ROOT, options.version, datetime.now(UTC).strftime("%Y-%m-%d"))
    subprocess.run([sys.executable, str(ROOT / "scripts" / "generate.py")], check=True)  # noqa: S603 -- our own
    _say(f"pyproject.toml, CHANGELOG.md and what is generated state {options.version}: read, commit and tag them")


def _build(options: argparse.Namespace) -> None:
    changes = versions.entry(ROOT, options.version)
    started = datetime.now(UTC)
    revision = building.git("rev-parse", "HEAD")
    if building.git("status", "--porcelain"):
        if not options.dirty:
            raise versions.WrongVersion("files are not committed: a release is of a commit (DIRTY=1 for a trial)")
        revision += "-dirty"
    created = int(building.git("log", "-1", "--format=%ct"))
    source, builder, invocation = building.builder()
    made = building.Options(
        options.version,
        revision,
        source,
        created,
        _time(datetime.fromtimestamp(created, UTC)),
        _platforms(options),
        options.base,
    )
    shutil.rmtree(TARGET, ignore_errors=True)
    layouts = building.build(made, TARGET / files.IMAGES)
    helm("package", CHART, "--destination", TARGET)
    manifests.write_all(TARGET, made.version)
    (TARGET / files.CHANGES).write_text(changes, encoding="utf-8")
    for process, path in layouts.items():
        _write_sboms(process, path, made)
        build = provenance.Build(
            version=made.version,
            dockerfile=f"Dockerfile.{process}",
            source=made.source,
            revision=made.revision,
            base=made.base_name,
            started=_time(started),
            finished=_time(datetime.now(UTC)),
            builder=builder or provenance.LOCAL_BUILDER,
            invocation=invocation,
            inputs=_inputs(process),
        )
        subjects = {path.name: layout.index_of(path)["digest"]}
        subjects |= {f"{path.name} {image.platform}": image.digest for image in layout.images(path)}
        files.write_json(TARGET / files.provenance_file(path.name), provenance.statement(subjects, build))
    files.write_digests(TARGET)
    files.write_checksums(TARGET)
    options.trial = options.dirty or bool(options.base)
    _verify(options)


def _write_sboms(process: str, path: Path, made: building.Options) -> None:
    """Write the SBOM of each platform's image of one process."""
    lock = contents.locked((LOCKS / f"{process}.lock").read_text(encoding="utf-8"))
    for image in layout.images(path):
        python, debian = contents.installed(image)
        contents.check_locked(python, lock, made.version)
        about = sbom.Subject(
            path.name, made.version, image.platform, image.digest, made.base_name, made.source, made.created_text
        )
        files.write_json(TARGET / files.sbom_file(path.name, image.platform), sbom.document(about, python, debian))


def _inputs(process: str) -> dict[str, str]:
    """Return path to SHA-256 of the files that pin what an image is made of."""
    inputs = [LOCKS / f"{process}.lock", LOCKS / "build.lock", LOCKS / "install", ROOT / f"Dockerfile.{process}"]
    return {str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest() for file in inputs}


def _verify(options: argparse.Namespace) -> None:
    base = "" if options.trial else building.pinned_base()
    platforms = frozenset("/".join(each.split("/")[:2]) for each in _platforms(options))
    found = list(files.problems(TARGET, files.Expected(options.version, LOCKS, base, platforms)))
    for problem in found:
        _say(problem)
    if found:
        raise RuntimeError(f"{TARGET} is no release of {options.version}")
    _say(f"{TARGET} is complete, and all of it agrees")


def _publish(options: argparse.Namespace) -> None:
    if not options.registry:
        raise versions.WrongVersion("name where to store the images: REGISTRY=registry.example/team")
    _verify(options)
    host = options.registry.partition("/")[0]
    allowed = Registries(hosts={host: RegistryHost(plain_http=options.plain_http)})
    registry = Registry(allowed, credentials_from_environment())
    for stored in publish(TARGET, options.version, options.registry, registry, partial(_signer, options)):
        _say(stored)


def _github(options: argparse.Namespace) -> None:
    """Make the release of the tag, with a signed statement about its files."""
    _verify(options)
    assets = files.assets(TARGET, options.version)
    signed = TARGET.parent / "signed"
    shutil.rmtree(signed, ignore_errors=True)
    signed.mkdir()
    made = [*assets, *signing.write(signed, assets, options.version, _signer(options))]
    words = ["release", "create", f"v{options.version}", "--verify-tag", "--title", options.version]
    words += ["--notes-file", str(TARGET / files.CHANGES), *map(str, made)]
    subprocess.run([shutil.which("gh") or "gh", *words], check=True)  # noqa: S603 -- a checked version and our files


def _signer(options: argparse.Namespace) -> ImageSigner:
    return SigningOptions(key=options.key).signer()


def _platforms(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(filter(None, options.platforms.split(",")))


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _say(text: str) -> None:
    print(escape(f"release: {text}"), file=sys.stderr, flush=True)  # noqa: T201 -- a command line


if __name__ == "__main__":
    sys.exit(main())
