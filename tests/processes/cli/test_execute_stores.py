"""The store of `gkm exec`: whose it is, where it is, which machines share it, and what happens on a full disk."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli import execution
from support.cli.command import CACHE, SECONDS, content, forked
from support.cli.execution import CONTAINER, USERS, Machine
from support.registry.server import Registry

# They mount, and run as another user.
pytestmark = [pytest.mark.mounts, pytest.mark.usefixtures("as_root")]
GROUP = next(path.relative_to(CACHE) for path in CACHE.rglob("__grp__*.json"))
PATHS = f'cat "$TRITON_CACHE_DIR"/{GROUP}; echo "$TRITON_CACHE_DIR"'


@pytest.fixture(params=[*USERS, CONTAINER], ids=["root", "another", "container"])
def machine(request: pytest.FixtureRequest, registry_server: Registry, image: str) -> Iterator[Machine]:
    with execution.machine(registry_server, image, request.param) as made:
        yield made


def entry(machine: Machine) -> dict[Path, bytes]:
    (found,) = (machine.store / "store" / "sha256").iterdir()
    return content(found / "cache")


def assert_paths_are_its_own(output: str) -> None:
    group, path = output.splitlines()
    named = json.loads(group)["child_paths"]
    assert named == {name: f"{path}/{GROUP.parent}/{name}" for name in named}


def test_root_that_may_not_mount_writes_in_a_copy_of_its_own(root: Machine) -> None:
    inside = replace(root, user=CONTAINER)
    change = 'cd "$TRITON_CACHE_DIR" && mkdir added && for f in */*.cubin; do echo x >> $f; done'
    assert inside.shell(change).returncode == 0
    assert entry(root) == content(CACHE)
    for each in (inside, root):
        assert "added" not in each.shell('ls "$TRITON_CACHE_DIR"').stdout


@pytest.mark.parametrize("prepared", ["owner", "mode", "mode of a part"])
def test_a_store_that_others_can_fill_is_refused(root: Machine, prepared: str) -> None:
    victim = root.directory / "victim"
    victim.mkdir()
    (victim / "file").touch()
    assert root.shell("true").returncode == 0
    (root.store / "work").rmdir()
    (root.store / "work").symlink_to(victim)
    if prepared == "owner":
        os.chown(root.store, 65534, 65534)
    elif prepared == "mode":
        root.store.chmod(0o775)
    else:
        (root.store / "store").chmod(0o777)
        (root.store / "work").unlink()
        (root.store / "work").mkdir(0o755)
        (root.store / "store" / "sha256").chmod(0o777)
    done = root.shell("echo ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(root.store) in done.stderr
    assert "--store" in done.stderr
    assert (victim / "file").exists()


STRANGER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
"""A user without a capability."""


def as_stranger(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STRANGER, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "of an earlier version"])
@pytest.mark.parametrize("user", [(), CONTAINER], ids=["root", "container"])
def test_no_other_user_reads_the_store_of_root(root: Machine, user: tuple[str, ...], *, earlier: bool) -> None:
    machine = replace(root, user=user)
    if earlier:
        assert machine.shell("true").returncode == 0
        for directory in (root.store, *(path for path in root.store.iterdir() if path.is_dir())):
            directory.chmod(0o755)
    assert machine.shell("true").returncode == 0
    parts = [path for path in root.store.iterdir() if path.is_dir()]
    assert {path.name for path in parts} >= {"store", "blobs", "copies", "locks", "mounts", "relocated", "run"}
    for part in parts:
        assert "Permission denied" in as_stranger("ls", part).stderr
    (found,) = (root.store / "store" / "sha256").iterdir()
    assert "Permission denied" in as_stranger("cat", found / "cache" / GROUP).stderr


@pytest.mark.parametrize("user", [(), CONTAINER], ids=["root", "container"])
def test_a_program_of_root_that_becomes_another_user_reads_its_cache(root: Machine, user: tuple[str, ...]) -> None:
    (root.directory / "deep").mkdir(0o755)
    store = root.directory / "deep" / "new" / "store"
    done = replace(root, user=user).shell(f"exec {shlex.join(STRANGER)} sh -c {shlex.quote(PATHS)}", "--store", store)
    assert done.returncode == 0, done.stderr
    assert_paths_are_its_own(done.stdout)
    assert [path.stat().st_mode & 0o777 for path in (store.parent, store)] == [0o711, 0o711]


@pytest.mark.parametrize(
    ("owner", "mode", "why"),
    [
        (65534, 0o755, "belongs to user 65534"),
        (65534, 0o1777, "belongs to user 65534"),
        (0, 0o775, "other users may write in"),
        (0, 0o757, "other users may write in"),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_store_below_a_directory_that_others_can_rename_is_refused(
    root: Machine, owner: int, mode: int, why: str, depth: int, *, there: bool
) -> None:
    above = root.directory / "above"
    store = above.joinpath(*["own"] * (depth - 1), "store")
    (store if there else above).mkdir(0o755, parents=True)
    os.chown(above, owner, owner)
    above.chmod(mode)
    done = root.shell("echo ran", "--store", store)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"{above} " in done.stderr
    assert why in done.stderr
    assert "--store" in done.stderr
    assert store.exists() == there


def test_a_store_below_a_directory_of_root_that_is_sticky_is_no_one_elses(another: Machine) -> None:
    """As /tmp: only the owner of an entry renames it, so each user may have a store there."""
    above = another.directory / "above"
    above.mkdir()
    above.chmod(0o1777)
    assert another.shell("true", "--store", above / "store").returncode == 0


@pytest.mark.parametrize("part", ["work", "trash", "copies", "locks"])
def test_no_link_in_a_store_is_followed(root: Machine, part: str) -> None:
    victim = root.directory / "victim"
    victim.mkdir()
    (victim / "file").touch()
    root.store.mkdir(0o755)
    (root.store / part).symlink_to(victim)
    done = root.shell("echo ran")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{root.store / part}: Not a directory" in done.stderr
    assert [path.name for path in victim.iterdir()] == ["file"]


def test_no_umask_opens_a_store_or_closes_it(machine: Machine) -> None:
    for umask in ("0", "077"):
        words = ["sh", "-c", f'umask {umask} && exec "$@"', "sh", *machine.words("--", "sh", "-c", "umask")]
        done = subprocess.run(
            words, env=machine.variables(), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert (done.returncode, int(done.stdout, 8)) == (0, int(umask, 8)), done.stderr
    assert not [path for path in machine.store.rglob("*") if path.stat(follow_symlinks=False).st_mode & 0o022 == 0o022]


@pytest.mark.parametrize("form", ["{}/x/../new", "//{}/new", "{}/link/new"])
def test_a_store_may_be_named_by_any_path(another: Machine, form: str) -> None:
    (another.directory / "link").symlink_to(another.directory)
    done = another.shell(PATHS, "--store", form.format(another.directory))
    assert done.returncode == 0, done.stderr
    assert_paths_are_its_own(done.stdout)
    assert (another.directory / "new" / "store").is_dir()


@pytest.mark.parametrize("name", ["a\nb", f"{'d' * 250}/" * 4])
def test_a_path_that_no_cache_can_have_is_wrong_usage(another: Machine, name: str) -> None:
    done = another.shell("echo ran", "--store", another.directory / name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--store" in done.stderr


def test_after_a_move_of_the_store_caches_have_the_new_paths(machine: Machine) -> None:
    assert machine.shell("true").returncode == 0
    moved = machine.directory / "moved"
    machine.store.rename(moved)
    done = machine.shell(PATHS, "--store", moved)
    assert str(moved) in done.stdout
    assert_paths_are_its_own(done.stdout)


def test_another_machine_removes_nothing_that_a_program_uses(root: Machine) -> None:
    words = root.words("--", "sh", "-c", f"echo ready; read end; {PATHS}")
    first = subprocess.Popen(words, env=root.variables(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout
    assert first.stdout.readline() == "ready\n"
    boot = root.directory / "boot_id"
    boot.write_text("11111111-2222-4333-8444-555555555555\n")
    elsewhere = ("unshare", "-m", "sh", "-c", f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"', "sh")
    second = replace(root, user=elsewhere).shell(PATHS)
    assert second.returncode == 0, second.stderr
    output, _ = first.communicate("\n")
    assert_paths_are_its_own(output)
    assert output == second.stdout
    # No program is left: the trees of the other machine look like those of an earlier boot.
    assert root.shell("true").returncode == 0
    (trees,) = (root.store / "relocated").iterdir()
    assert len(list(trees.iterdir())) == 1


FILL = """
import os, sys
from pathlib import Path
from gkm.images.pulling import entry
from gkm.images.pulling.entry import FileList
from gkm_cli.cache.run_store import RunStore
store = RunStore(Path(sys.argv[1]))
store.make()
work = store.layout.work / "old"
(work / "cache").mkdir(parents=True)
size = os.statvfs(store.layout.state).f_bavail * 4096 - (24 << 10)
(work / "cache" / "large").write_bytes(bytes(size))
entry.publish(store.layout, work, FileList("sha256:" + "e" * 64, "triton", size, []), b"{}")
"""


@pytest.mark.parametrize("is_used", [False, True], ids=["unused", "used"])
def test_on_a_full_disk_unused_caches_go(root: Machine, *, is_used: bool) -> None:
    fill = shlex.join([sys.executable, "-c", FILL, str(root.store)])
    lock = f"exec 9<{root.store}/locks/{'e' * 64}; flock -s 9; " if is_used else ""
    touch = f"touch {root.store}/locks/{'e' * 64}; " if is_used else ""
    script = f'mount -t tmpfs -o size=3m,mode=755 none {root.store} && {fill} && {touch}{lock} exec "$@"'
    root.store.mkdir()
    small = replace(root, user=("unshare", "-m", "sh", "-c", script, "sh"))
    done = small.shell(f"ls {root.store}/store/sha256")
    if is_used:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert "free space" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, f"{root.image[-64:]}\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("no-such-program", 127, "no-such-program: No such file or directory"),
        ("/etc/passwd", 126, "/etc/passwd: Permission denied"),
        ("", 2, "the program has no name"),
    ],
)
def test_for_a_program_that_cannot_run_nothing_is_fetched(root: Machine, program: str, code: int, why: str) -> None:
    done = root.run("--", program)
    assert (done.returncode, done.stdout, why in done.stderr) == (code, "", True), done
    assert not root.store.exists()


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_a_cache_without_a_verified_signature_runs_with_a_warning(root: Machine, mode: str) -> None:
    config = root.directory / "config.yaml"
    config.write_text(f"verification: {{mode: {mode}}}\n")
    words = root.arguments("--config", config, "--", "echo", "ran")
    key = words.index("--key")
    del words[key : key + 2]
    done = forked(words, root.variables())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "ran\n", 1)
    assert done.stderr.startswith("warning: not verified: ")
