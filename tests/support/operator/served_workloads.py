"""Reviews of workloads over HTTPS, as the API server requests them: the server, and a cluster behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.api.network_settings import Network
from support.grove.objects import Json
from support.operator.webhook import Webhook, serving
from support.operator.workloads import Answer, Workloads, answer, review, workloads


@dataclass(frozen=True)
class ServedWorkloads:
    """A server with a cluster behind it."""

    behind: Workloads
    webhook: Webhook

    def ask(self, path: str, reviewed: Json, old: Json | None = None) -> Answer:
        """Return the response to a request about an object."""
        status, body = self.webhook.ask("POST", f"{path}?timeout=10s", review(path, reviewed, old))
        assert status == 200, body
        return answer(body, reviewed)


@contextmanager
def served_workloads(directory: Path, settings: Network) -> Iterator[ServedWorkloads]:
    """Serve the reviews of an empty cluster until the block ends."""
    behind = workloads(settings=settings)
    with serving(directory, more=behind.reviewers) as webhook:
        yield ServedWorkloads(behind, webhook)
