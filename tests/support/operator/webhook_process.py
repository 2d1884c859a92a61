"""The webhook's server as a process of its own, so that its memory can be measured; takes DIRECTORY as its argument.

Writes its port to DIRECTORY/port, its log to standard error, and ends when standard input does.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gkm.api import msgspec_warmup
from gkm.hoststate import files, logs
from gkm_operator.admission.domains.cluster_view import READ_SECONDS
from gkm_operator.admission.https.server import Reviewer
from gkm_operator.admission.validator import ImageValidator
from gkm_operator.admission.workloads import PATH
from support.operator.group_templates import filled, rendering
from support.operator.images import DIGEST, GOOD, OTHER, FakeImages
from support.operator.pod_caches import pod_caches
from support.operator.reviews import IMAGE
from support.operator.webhook import serving
from support.operator.workloads import enrolled_set

UNSIGNED_IMAGE = "registry.test/team/unsigned:1"


def _slow_reads(verb: str, _plural: str) -> None:
    """Let a read of a single object take longer than a review waits."""
    if verb == "get":
        time.sleep(READ_SECONDS)


def main() -> None:
    directory = Path(sys.argv[1])
    logs.configure()
    msgspec_warmup.warm_up()
    validator = ImageValidator(FakeImages({IMAGE: DIGEST, UNSIGNED_IMAGE: OTHER}, {DIGEST: GOOD}), "enforce")
    workloads = enrolled_set()
    workloads.api.fault = _slow_reads
    with rendering() as renderer:
        groups = filled(renderer)
        groups.api.fault = _slow_reads
        pods = {PATH: pod_caches("llama").reviewer}
        serve(directory, validator, workloads.reviewers | groups.reviewers | pods)


def serve(directory: Path, validator: ImageValidator, reviewers: Mapping[str, Reviewer]) -> None:
    """Serve until standard input ends."""
    with serving(directory, validator.review, reviewers) as webhook:
        files.replace(directory / "port", str(webhook.server.port).encode())
        sys.stdin.read()


if __name__ == "__main__":
    main()
