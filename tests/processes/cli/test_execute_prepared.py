"""`gkm exec --prepare` before a program, and `--prune` beside programs that run."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.cli import execution
from support.cli.command import CACHE, content, forked, gkm
from support.cli.execution import CONTAINER, USERS, Machine
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey

# They mount, and run as another user.
pytestmark = [pytest.mark.mounts, pytest.mark.usefixtures("as_root")]
HASHES = 'cd "$TRITON_CACHE_DIR" && find . -name "*.cubin" -type f | sort | xargs cat | sha256sum'


@pytest.fixture(params=[*USERS, CONTAINER], ids=["root", "another", "container"])
def machine(request: pytest.FixtureRequest, registry_server: Registry, image: str) -> Iterator[Machine]:
    with execution.machine(registry_server, image, request.param) as made:
        yield made


def expected_hashes() -> str:
    words = ["sh", "-c", HASHES]
    return subprocess.run(
        words, env={"TRITON_CACHE_DIR": str(CACHE), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    ).stdout


def test_a_prepared_cache_is_fetched_before_its_program(machine: Machine, registry_server: Registry) -> None:
    done = machine.run("--prepare", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["digest"] == machine.image.partition("@")[2]
    assert result["store"] == str(machine.store)
    (entry,) = (machine.store / "store" / "sha256").iterdir()
    assert content(entry / "cache") == content(CACHE)
    assert list((machine.store / "copies").iterdir()) == []
    registry_server.requests.clear()
    assert machine.shell(HASHES).stdout == expected_hashes()
    assert len([path for path in map(str, registry_server.requests) if "/blobs/" in path]) <= 2


def test_a_program_has_no_alarm_of_the_time_of_its_start(root: Machine) -> None:
    code = "import signal; print(signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM).name)"
    done = root.run("--timeout", "10m", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(0.0, 0.0) SIG_DFL\n", "")


def test_what_is_prepared_is_verified_first(root: Machine) -> None:
    (root.directory / "key.pub").write_bytes(SigningKey().public_pem)
    done = root.run("--prepare")
    assert (done.returncode, done.stdout, done.stderr.startswith("not verified: ")) == (3, "", True), done
    assert not root.store.exists()


def test_prune_takes_no_file_from_programs_that_run_and_programs_start_beside_it(machine: Machine) -> None:
    words = machine.words("--", "sh", "-c", f"echo ready; read end; {HASHES}")
    first = subprocess.Popen(words, env=machine.variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout
    assert first.stdout.readline() == "ready\n"
    kept = pruned(machine)
    assert (kept["removed"], kept["inUse"]) == ([], 1)
    output, _ = first.communicate("\n")
    assert output == expected_hashes()
    running = [
        subprocess.Popen(
            machine.words("--", "sh", "-c", HASHES), env=machine.variables(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    while any(each.poll() is None for each in running):
        pruned(machine)
    assert [each.communicate()[0] for each in running] == [expected_hashes()] * 3
    pruned(machine)
    assert list((machine.store / "store" / "sha256").iterdir()) == []


def pruned(machine: Machine) -> dict[str, object]:
    words = ["exec", "--prune", "--store", str(machine.store), "-o", "json"]
    done = forked(words, machine.variables(), machine.user) if machine.user in USERS else gkm(*words)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found
