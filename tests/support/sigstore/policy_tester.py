"""The real policy-tester of sigstore's policy-controller: its verdict about an image, without a cluster.

It knows a private Sigstore in two ways: by an object of kind TrustRoot, for signatures in the legacy form, and by a TUF
repository, for bundles.
"""

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from support.cluster.certificates import Authority, public_pem
from support.host.waiting import scaled
from support.peers import build as peers
from support.sigstore.services import Sigstore
from support.sigstore.tuf_repository import TufRepository

SECONDS = scaled(60.0)
TRUST_ROOT = "testbed"
Json = dict[str, Any]


class PolicyTesterFailed(RuntimeError):
    """policy-tester gave no verdict; the message is its log."""


@dataclass(frozen=True)
class PolicyTester:
    """policy-tester, whose home is `directory` and whose Sigstore is that of a TUF repository."""

    directory: Path

    @classmethod
    def create(cls, directory: Path, repository: TufRepository) -> "PolicyTester":
        """Initialize the cache of TUF in `directory`, as policy-controller does at its start with --tuf-mirror."""
        directory.mkdir(parents=True)
        root = directory / "root.json"
        root.write_bytes(repository.root)
        tester = cls(directory)
        command = [str(peers.binary("tuf-initialize")), f"--mirror={repository.url}", f"--root={root}"]
        subprocess.run(command, env=tester._environment(), timeout=SECONDS, check=True)
        return tester

    def refusals(self, image: str, policies: list[Json], trust_root: Json | None = None) -> list[str]:
        """Return why the policies refuse an image; an accepted one has no reasons.

        Raises:
            PolicyTesterFailed: there is no verdict, such as for a policy that is not valid.
        """
        policy = self.directory / "policy.json"
        policy.write_text("\n---\n".join(json.dumps(each) for each in policies))
        command = [str(peers.binary("policy-tester")), f"--policy={policy}", f"--image={image}", "--log-level=error"]
        if trust_root:
            (self.directory / "trust-root.json").write_text(json.dumps(trust_root))
            command.append(f"--trustroot={self.directory / 'trust-root.json'}")
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if not done.returncode:
            return []
        try:
            reasons: list[str] = json.loads(done.stdout)["errors"]
        except (ValueError, KeyError) as problem:
            raise PolicyTesterFailed(f"{' '.join(command)}: {done.stderr.strip()}") from problem
        return reasons

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.directory), "TUF_ROOT": str(self.directory / "tuf")}


def trust_root(sigstore: Sigstore) -> Json:
    """Return a TrustRoot with the keys of a Sigstore; of its logs only Rekor 1: policy-controller takes only ECDSA."""
    rekor = sigstore.rekor.key.public_key()
    if not isinstance(rekor, ec.EllipticCurvePublicKey):
        raise TypeError("the first Rekor signs with ECDSA")
    keys = {
        "certificateAuthorities": [_authority("fulcio.testbed", sigstore.fulcio.intermediate, sigstore.fulcio.root)],
        "tLogs": [_log("rekor.testbed", public_pem(rekor))],
        "ctLogs": [_log("ct.testbed", public_pem(sigstore.fulcio.log_key.public_key()))],
        "timestampAuthorities": [_authority("tsa.testbed", sigstore.tsa.leaf, sigstore.tsa.root)],
    }
    return {
        "apiVersion": "policy.sigstore.dev/v1alpha1",
        "kind": "TrustRoot",
        "metadata": {"name": TRUST_ROOT},
        "spec": {"sigstoreKeys": keys},
    }


def _authority(host: str, *chain: Authority) -> Json:
    pem = b"".join(each.pem for each in chain)
    subject = {"organization": "testbed", "commonName": host}
    return {"subject": subject, "uri": f"https://{host}", "certChain": base64.b64encode(pem).decode()}


def _log(host: str, key: bytes) -> Json:
    return {"baseURL": f"https://{host}", "hashAlgorithm": "sha256", "publicKey": base64.b64encode(key).decode()}
