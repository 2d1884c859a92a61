"""The real cosign 3 and 2, without any network but the registry (and the double of Sigstore) on this machine."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import scaled
from support.peers import build as peers

PLAIN = ("--allow-http-registry", "--allow-insecure-registry")
VERDICT = re.compile("no matching (signatures|attestations)|no signatures found|no valid bundles exist in registry")
"""How cosign refuses an image. Other errors, of a flag, a file or a registry, are no verdict."""


class CosignFailed(RuntimeError):
    """cosign refused; the message is what it said."""


@dataclass(frozen=True)
class Cosign:
    """cosign with one key pair, an empty signing configuration and an empty trusted root below `directory`."""

    directory: Path
    command: str = "cosign"
    """The command of support/peers/modules: cosign is version 3, cosign2 version 2."""

    @classmethod
    def create(cls, directory: Path, command: str = "cosign") -> "Cosign":
        """Make the key pair and the two files that keep cosign from looking for Sigstore's services."""
        directory.mkdir(parents=True, exist_ok=True)
        cosign = cls(directory, command)
        cosign.run("generate-key-pair")
        cosign.run("signing-config", "create", "--out", str(cosign.signing_config))
        cosign.run("trusted-root", "create", "--out", str(cosign.trusted_root))
        return cosign

    @property
    def public_key(self) -> Path:
        return self.directory / "cosign.pub"

    @property
    def private_key(self) -> Path:
        return self.directory / "cosign.key"

    @property
    def signing_config(self) -> Path:
        return self.directory / "signing-config.json"

    @property
    def trusted_root(self) -> Path:
        return self.directory / "trusted-root.json"

    def sign(self, image: str) -> None:
        """Sign repository@digest as cosign 3 does by default: a bundle v0.3, as a referrer or in the fallback tag."""
        key = ("--key", str(self.private_key), "--signing-config", str(self.signing_config))
        self.run("sign", *key, *PLAIN, "--yes", image)

    def sign_legacy(self, image: str) -> None:
        """Sign repository@digest the old way: a simplesigning payload in the tag sha256-<hex>.sig."""
        old = ("--use-signing-config=false", "--new-bundle-format=false", "--tlog-upload=false")
        self.run("sign", "--key", str(self.private_key), *old, *PLAIN, "--yes", image)

    def verify(self, image: str, *, key: Path | None = None, legacy: bool = False) -> str:
        """Verify repository@digest and return what cosign prints.

        Raises:
            CosignFailed: no signature by `key` (default: ours) was found.
        """
        form = ("--new-bundle-format=false",) if legacy else ("--trusted-root", str(self.trusted_root))
        arguments = ("--key", str(key or self.public_key), "--insecure-ignore-tlog=true", *form, *PLAIN)
        return self.run("verify", *arguments, image)

    def accepts(self, image: str, arguments: Sequence[str], *, bundle: bool) -> bool:
        """Return whether `verify` with these arguments accepts repository@digest, in one of the two forms.

        Raises:
            CosignFailed: it did not reach a verdict.
        """
        try:
            self.run("verify", *arguments, f"--new-bundle-format={str(bundle).lower()}", *PLAIN, image)
        except CosignFailed as refusal:
            if not VERDICT.search(str(refusal)):
                raise
            return False
        return True

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Run any cosign command in the directory and return its output."""
        environment = {**os.environ, "COSIGN_PASSWORD": "", "HOME": str(self.directory), **(environment or {})}
        command = [str(peers.binary(self.command)), *arguments]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
        if done.returncode:
            raise CosignFailed(f"cosign {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout
