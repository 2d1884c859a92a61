"""A real Prometheus (Debian's), run by hand on a loopback port, and its HTTP API."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.host import pages, ports
from support.host.processes import Process
from support.host.waiting import scaled
from support.peers import require

Json = dict[str, Any]
PACKAGE = "prometheus"
SCRAPE_SECONDS = 1


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    address: str
    process: Process

    def query(self, expression: str) -> list[Json]:
        """Return the samples of an expression now.

        Raises:
            urllib.error.HTTPError: it does not parse.
        """
        return list(self._get("query", {"query": expression})["result"])

    def query_range(self, expression: str, seconds: float, step: float) -> list[Json]:
        """Return the samples of an expression in the last seconds."""
        end = time.time()
        parameters = {"query": expression, "start": str(end - seconds), "end": str(end), "step": str(step)}
        return list(self._get("query_range", parameters)["result"])

    def series(self, selector: str) -> list[Json]:
        """Return the labels of all series that a selector finds, at any time."""
        return list(self._get("series", {"match[]": selector}))

    def targets(self) -> list[Json]:
        return list(self._get("targets", {"state": "active"})["activeTargets"])

    def rules(self) -> list[Json]:
        return [rule for group in self._get("rules", {})["groups"] for rule in group["rules"]]

    def metrics(self) -> dict[tuple[str, str], str]:
        """Return {(job, name of a metric): type} of everything that the targets expose, with or without a sample."""
        found = self._get("targets/metadata", {"match_target": '{job!=""}'})
        return {(each["target"]["job"], each["metric"]): each["type"] for each in found}

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:  # noqa: ANN401 -- JSON
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=scaled(10)) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(directory: Path, scrape_configs: list[Json], rules: Path) -> Iterator[Prometheus]:
    """Run it until the block ends."""
    program = require.command("prometheus", PACKAGE)
    directory.mkdir()
    configuration = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(rules)],
        "scrape_configs": scrape_configs,
    }
    file, address = directory / "prometheus.yaml", f"127.0.0.1:{ports.free()}"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    words = (f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={address}")
    process = Process.start("prometheus", [program, *words], directory / "prometheus.log")
    try:
        process.ready(lambda: pages.fetch(address, "-/ready")[0] == 200, "it is ready")
        yield Prometheus(address, process)
    finally:
        process.stop()
