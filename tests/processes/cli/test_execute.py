"""`gkm exec`: a program gets a verified cache, mounted as root and extracted otherwise; its exit code is the result."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gkm_cli.cache import run_store
from support.cli import execution
from support.cli.command import CACHE, content, gkm
from support.cli.execution import CONTAINER, ROOT, USERS, Machine
from support.fakes import nvml_library
from support.host.waiting import until
from support.images.directories import KEY, component, kernel
from support.registry import faults
from support.registry.server import Registry

# They mount, and run as another user.
pytestmark = [pytest.mark.mounts, pytest.mark.usefixtures("as_root")]
GROUPS = sorted(path.relative_to(CACHE) for path in CACHE.rglob("__grp__*.json"))
WRITES = """touch new; mkdir below
for directory in */; do touch "${directory}new"; done
for file in */__grp__*.json; do cp /dev/null "$file"; done"""
COPY = 'cp -r "$TRITON_CACHE_DIR" "$0/seen" && chmod -R u+w "$0/seen" && echo "$TRITON_CACHE_DIR"'


@pytest.fixture(params=USERS, ids=["root", "another"])
def machine(request: pytest.FixtureRequest, registry_server: Registry, image: str) -> Iterator[Machine]:
    with execution.machine(registry_server, image, request.param) as made:
        yield made


def mounts() -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "gkm-exec" in line]


@pytest.mark.parametrize("rw", [(), ("--rw",)], ids=["read-only", "rw"])
def test_the_program_sees_the_cache_with_its_own_path_in_it(machine: Machine, rw: tuple[str, ...]) -> None:
    done = machine.run(*rw, "--", "sh", "-c", COPY, machine.directory)
    assert (done.returncode, done.stderr) == (0, "")
    path, seen = done.stdout.strip(), machine.directory / "seen"
    for group in GROUPS:
        named = json.loads((seen / group).read_text())["child_paths"]
        assert named == {name: f"{path}/{group.parent}/{name}" for name in named}
    others = {name: data for name, data in content(CACHE).items() if name not in GROUPS}
    assert {name: data for name, data in content(seen).items() if name not in GROUPS} == others
    assert mounts() == []


def test_exit_code_standard_streams_and_environment_are_the_programs(machine: Machine) -> None:
    script = "echo out; echo err >&2; test $MINE = own && exit 41"
    done = replace(machine, environment={"MINE": "own"}).shell(script)
    assert (done.returncode, done.stdout, done.stderr) == (41, "out\n", "err\n")


def test_a_signal_reaches_the_program(root: Machine) -> None:
    process = subprocess.Popen(root.words("--", "sleep", "600"), env=root.variables())
    name = Path(f"/proc/{process.pid}/comm")
    until(lambda: name.read_text() == "sleep\n", "the program to run")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM


def test_the_program_ignores_no_signal_that_python_ignores(root: Machine) -> None:
    ignored = root.shell("grep SigIgn /proc/self/status").stdout.split()[1]
    assert not int(ignored, 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.parametrize(("name", "code"), [("/nowhere/program", 127), ("/etc/passwd", 126), ("", 2)])
def test_a_program_that_cannot_run_has_the_exit_code_of_a_shell(root: Machine, name: str, code: int) -> None:
    done = root.run("--", name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith("error: ")


def test_without_rw_nothing_can_be_written(machine: Machine) -> None:
    done = machine.shell(f'cd "$TRITON_CACHE_DIR"; {WRITES}')
    directories = {name.parent for name in content(CACHE)}
    assert (done.returncode, done.stderr.count("\n")) == (1, 2 + len(directories) + len(GROUPS)), done
    refused = ("Read-only file system", "Permission denied")
    assert all(line.endswith(refused) for line in done.stderr.splitlines()), done
    assert machine.run("--", "sh", "-c", COPY, machine.directory).returncode == 0
    assert content(machine.directory / "seen").keys() == content(CACHE).keys()


def test_with_rw_a_program_writes_what_no_other_one_sees(machine: Machine) -> None:
    change = (
        'cd "$TRITON_CACHE_DIR" && mkdir added && echo x > added/kernel && for f in */*.cubin; do echo x > $f; done'
    )
    assert machine.shell(change, "--rw").returncode == 0
    for rw in ((), ("--rw",)):
        done = machine.shell('cat "$TRITON_CACHE_DIR"/*/*.cubin | sha256sum; ls "$TRITON_CACHE_DIR"', *rw)
        assert "added" not in done.stdout
        whole = subprocess.run(
            ["sh", "-c", "cat */*.cubin | sha256sum; ls"], cwd=CACHE, capture_output=True, check=True
        )
        assert done.stdout == whole.stdout.decode()


def test_the_layer_in_memory_has_a_limit(root: Machine) -> None:
    fill = 'dd if=/dev/zero of="$TRITON_CACHE_DIR/large" bs=1M count=64 2>&1'
    assert "No space left" in root.shell(fill, "--rw", "--size-limit", "0.01").stdout
    assert root.shell(fill, "--rw").returncode == 0


def test_the_second_run_needs_no_content_from_the_registry(machine: Machine, registry_server: Registry) -> None:
    assert machine.shell("true").returncode == 0
    registry_server.requests.clear()
    assert machine.shell("true").returncode == 0
    config = [path for path in map(str, registry_server.requests) if "/blobs/" in path]
    assert len(config) <= 2, "the labels, and the signature"


def test_a_key_that_is_none_and_no_signer_start_nothing(root: Machine, image: str) -> None:
    (root.directory / "key.pub").write_bytes(b"-----BEGIN PUBLIC KEY-----\n")
    unusable = root.shell("echo ran")
    assert (unusable.returncode, unusable.stdout, "key.pub' is no PEM public key" in unusable.stderr) == (
        1,
        "",
        True,
    ), unusable
    done = gkm("exec", "--cache", image, "--plain-http", "--store", root.store, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no signer is named" in done.stderr


def test_a_gpu_that_does_not_fit_is_the_answer_no(root: Machine, tmp_path: Path) -> None:
    done = replace(root, gpus=(nvml_library.A100,)).shell("echo ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "this GPU is sm_80" in done.stderr
    file = tmp_path / "gpus.json"
    file.write_text('[{"ids": [0], "backend": "cuda", "arch": "90", "warpSize": 32}]')
    assert replace(root, gpus=(nvml_library.A100,)).shell("echo ran", "--gpus", file).stdout == "ran\n"


def test_an_unsigned_image_is_the_answer_no(tmp_path: Path, image: str, key: Path) -> None:
    done = gkm(
        "exec", "--cache", image, "--plain-http", "--key", key, "--store", tmp_path / "store", "--", "echo", "ran"
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("not verified: ")
    assert not (tmp_path / "store").exists()


def test_content_that_is_not_that_of_its_digest_runs_nothing(machine: Machine, registry_server: Registry) -> None:
    manifest = json.loads(registry_server.store.repository("team/vector-add").manifests[machine.image[-71:]].data)
    registry_server.misbehave(faults.tampered(f"blobs/{manifest['layers'][0]['digest']}"))
    done = machine.shell("echo ran")
    assert (done.returncode, done.stdout, "it was changed or is damaged" in done.stderr) == (1, "", True), done
    registry_server.behave()
    make = "import sys; from pathlib import Path; from gkm_cli.cache.run_store import RunStore\n"
    run = [*machine.user, sys.executable, "-c", f"{make}RunStore(Path(sys.argv[1])).make()", str(machine.store)]
    subprocess.run(run, env=machine.variables(), check=True)
    assert [path.name for path in (machine.store / "locks").iterdir()] == ["building"]
    assert machine.shell("echo ran").stdout == "ran\n"


def test_a_cache_is_evicted_when_its_program_has_ended_and_not_before(machine: Machine) -> None:
    words = machine.words("--", "sh", "-c", "echo ready; read end")
    process = subprocess.Popen(words, env=machine.variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == "ready\n"
    code = (
        "import sys; from pathlib import Path; from gkm_cli.cache.run_store import RunStore\n"
        "store = RunStore(Path(sys.argv[1])); store.make(); store.evict(0)\n"
        "print(len(list(store.layout.store.iterdir())), len(list(store.views.iterdir())))"
    )

    def evicted() -> str:
        run = [*machine.user, sys.executable, "-c", code, str(machine.store)]
        return subprocess.run(run, env=machine.variables(), capture_output=True, text=True, check=True).stdout

    views = "0" if machine.user == ROOT else "1"
    assert evicted() == f"1 {views}\n"
    process.communicate("\n")
    assert evicted() == "0 0\n"
    assert machine.shell("echo ran").stdout == "ran\n"


def test_copies_end_with_their_programs(another: Machine) -> None:
    assert another.shell("true", "--rw").returncode == 0
    assert len([*another.store.glob("copies/*")]) == 2
    seen = another.shell('ls "$TRITON_CACHE_DIR/../.."', "--rw").stdout.split()
    assert len(seen) == 2, "its own, and its lock"


def test_a_store_that_cannot_be_written_is_one_line(another: Machine) -> None:
    done = another.shell("echo ran", "--store", "/proc/nowhere")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: /proc/nowhere: ")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/gkm/exec"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/gkm/exec"),
        ({"HOME": "/h"}, "/h/.cache/gkm/exec"),
    ],
)
def test_a_users_store_is_in_the_cache_directory(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run_store.default_directory(environment) == Path(expected)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run_store.default_directory(environment) == Path("/var/cache/gkm/exec")


def test_several_at_once_share_an_empty_store_also_if_one_is_killed(machine: Machine) -> None:
    script = 'cd "$TRITON_CACHE_DIR" && find . -type f | sort | xargs cat | wc -c'
    words, variables = machine.words("--", "sh", "-c", script), machine.variables()
    running = [
        subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    # In the midst of the first pull, which the others wait for.
    until(machine.store.exists, "the first one to begin")
    running[0].kill()
    results = [(*one.communicate(timeout=120), one.returncode) for one in running]
    expected = machine.shell(script).stdout
    assert int(expected) > 0
    assert results[1:] == [(expected, "", 0)] * 2
    assert mounts() == []


@pytest.mark.parametrize("user", [*USERS, CONTAINER], ids=["root", "another", "container"])
def test_each_of_several_runtimes_has_a_directory_of_its_own(
    registry_server: Registry, tmp_path: Path, user: tuple[str, ...]
) -> None:
    component(tmp_path / "root/vllm")
    kernel(tmp_path / "root/triton")
    ref = f"{registry_server.host}/team/several:1"
    built = gkm("cache", "build", tmp_path / "root", "--image", ref, "--push", "--plain-http", "-o", "json")
    image = f"{registry_server.host}/team/several@{json.loads(built.stdout)['digest']}"
    with execution.machine(registry_server, image, user) as made:
        done = made.shell(
            f'echo "$VLLM_CACHE_ROOT"; echo "$TRITON_CACHE_DIR"; cat "$TRITON_CACHE_DIR"/{KEY}/__grp__fwd.json'
        )
    vllm, triton, group = done.stdout.splitlines()
    assert Path(vllm).parent == Path(triton).parent
    assert (Path(vllm).name, Path(triton).name) == ("vllm", "triton")
    assert json.loads(group)["child_paths"]["fwd.json"] == f"{triton}/{KEY}/fwd.json"
