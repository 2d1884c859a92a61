"""Certificates from outside: files that change as kubelet changes them."""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cluster.certificates import Authority, Certificate
from support.host import pages, ports
from support.host.processes import Process
from support.host.waiting import until
from support.operator.deployment import operator


class Secret:
    """A Secret as kubelet mounts it: each version a directory of its own, and one link that is moved in one step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._versions = 0
        directory.mkdir()
        for name in ("tls.crt", "tls.key"):
            (directory / name).symlink_to(f"..data/{name}")

    def put(self, pair: Certificate) -> None:
        self._versions += 1
        version = self.directory / f"..{self._versions}"
        pair.write(version, "tls")
        link = self.directory / "..next"
        link.symlink_to(version.name)
        link.rename(self.directory / "..data")


@dataclass
class Site:
    secret: Secret
    process: Process
    port: int
    health: int

    def serves(self, pair: Certificate) -> bool:
        served = ssl.get_server_certificate(("127.0.0.1", self.port))
        return served.strip() == pair.certificate.decode().strip()

    def page(self, name: str) -> int:
        return pages.fetch(f"127.0.0.1:{self.health}", name)[0]


AUTHORITY = Authority.create()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    secret = Secret(tmp_path / "tls")
    secret.put(AUTHORITY.server(["127.0.0.1"]))
    port, health = ports.free(), ports.free()
    arguments = (
        "admission",
        f"--listen=127.0.0.1:{port}",
        f"--health=127.0.0.1:{health}",
        f"--tls-cert={secret.directory / 'tls.crt'}",
        f"--tls-key={secret.directory / 'tls.key'}",
        # There is no API server: with such files none is asked for.
        f"--kubeconfig={tmp_path / 'none'}",
    )
    with operator(tmp_path / "process", *arguments) as process:
        running = Site(secret, process, port, health)
        process.ready(lambda: running.page("readyz") == 200, "it is ready")
        yield running


def test_files_that_kubelet_changes_are_served_without_a_restart(site: Site) -> None:
    new = AUTHORITY.server(["127.0.0.1"])
    site.secret.put(new)
    assert site.serves(new)
    code, metrics = pages.fetch(f"127.0.0.1:{site.health}", "metrics")
    assert code == 200
    assert 'gkm_ready{program="gkm-operator-admission"} 1.0' in metrics
    # The alert about certificates of our own tells the two cases by these.
    assert 'task="certificate"' not in metrics


def test_mismatched_or_invalid_files_leave_the_old_pair_serving(site: Site) -> None:
    good, other = AUTHORITY.server(["127.0.0.1"]), AUTHORITY.server(["127.0.0.1"])
    site.secret.put(good)
    assert site.serves(good)
    for bad in (Certificate(other.certificate, good.key), Certificate(b"", b""), Certificate(b"\x00" * 99, good.key)):
        site.secret.put(bad)
        assert site.serves(good)
        assert site.page("readyz") == 200
    site.secret.put(other)
    assert site.serves(other)


def test_an_ending_process_releases_its_ports_and_logs_nothing(site: Site) -> None:
    site.process.stop()
    assert site.process.popen.returncode == 0
    assert site.page("healthz") == 0


def test_unusable_files_end_the_process_with_one_line(tmp_path: Path) -> None:
    pairs = [AUTHORITY.server(["x"]).write(tmp_path / str(number), "tls") for number in range(2)]
    for certificate, key in ((tmp_path / "none", tmp_path / "none"), (pairs[0][0], pairs[1][1])):
        arguments = (f"--tls-cert={certificate}", f"--tls-key={key}", "--health=127.0.0.1:0")
        directory = tmp_path / f"process-{certificate.name}"
        with operator(directory, "admission", "--listen=127.0.0.1:0", *arguments) as process:
            assert until(process.popen.poll, "it ends") == 1
            (line,) = process.log.read_text(encoding="utf-8").splitlines()
        told = json.loads(line)
        assert (told["event"], told["error"]) == ("process failed", "CertificateUnusable")
        assert f"{certificate} with {key}" in told["why"]
