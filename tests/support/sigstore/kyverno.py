"""The real command line of Kyverno: its verdict about an object under ImageValidatingPolicies, without a cluster."""

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.host.waiting import scaled
from support.peers import build as peers
from support.sigstore.services import Sigstore
from support.sigstore.tuf_repository import TufRepository

SECONDS = scaled(60.0)
CRD = Path(__file__).parents[3] / "crds" / "gkm.io_gkmcaches.yaml"
Json = dict[str, Any]


class KyvernoFailed(RuntimeError):
    """Kyverno gave no verdict; the message is what it printed."""


@dataclass(frozen=True)
class Kyverno:
    """Kyverno whose home is `directory`, where it caches what it fetches by TUF about a Sigstore."""

    directory: Path
    sigstore: Sigstore
    repository: TufRepository

    @property
    def tuf(self) -> Json:
        """The field `tuf` of an attestor whose Sigstore is that of the repository."""
        return {"mirror": self.repository.url, "root": {"data": base64.b64encode(self.repository.root).decode()}}

    def refusals(self, value: Json, policy: Json) -> list[str]:
        """Return why the policy refuses an object; an accepted one has no reasons.

        Raises:
            KyvernoFailed: there is no verdict, or the verdict is an error, such as of a policy that is not valid.
        """
        policy_file, value_file = self.directory / "policy.yaml", self.directory / "value.yaml"
        policy_file.write_text(json.dumps(policy))
        value_file.write_text(json.dumps(value))
        command = [str(peers.binary("kyverno")), "apply", str(policy_file), f"--resource={value_file}"]
        command += [f"--crd-paths={CRD}", "--policy-report", "--output-format=json"]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, "HOME": str(self.directory), "TUF_ROOT": str(self.directory / "tuf")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        try:
            (result,) = json.loads(done.stdout)["results"]
            return {"pass": [], "fail": [result["message"]]}[result["result"]]
        except (ValueError, KeyError) as problem:
            raise KyvernoFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}") from problem
