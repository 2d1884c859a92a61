"""Real programs that hang, flood, die or leave children behind: each run ends within its bounds and leaves nothing."""

import errno
import os
import signal
import subprocess
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from gkm.hoststate import bounded_command
from gkm.hoststate.bounded_command import MAX_STDERR_BYTES, BoundedCommand, CommandResult, RunFailed
from support.host.waiting import scaled, until


def shell(
    script: str, seconds: float = 20.0, *, capture_errors: bool = False, own_session: bool = True
) -> BoundedCommand:
    return BoundedCommand(
        ("/bin/sh", "-c", script), seconds, 1000, capture_errors=capture_errors, own_session=own_session
    )


def has_ended(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_result_holds_the_exit_status_and_both_streams() -> None:
    result = shell("echo one; echo two >&2; exit 3", capture_errors=True).run()
    assert result == CommandResult(3, b"one\n", b"two\n")


def test_without_capture_standard_error_is_discarded() -> None:
    assert shell("echo two >&2; kill -9 $$").run() == CommandResult(-9, b"", b"")


def test_the_input_reaches_the_program_and_ends() -> None:
    assert shell("cat; echo end").run(b"input\n").output == b"input\nend\n"


def test_a_program_without_input_reads_an_empty_one() -> None:
    assert shell("cat; echo end").run().output == b"end\n"


def test_unread_input_does_not_block() -> None:
    assert shell("exec 0<&-; echo end").run(bytes(1 << 20)).output == b"end\n"
    with pytest.raises(RunFailed, match=r"gives no answer within 0.3 s"):
        shell("exec sleep 600", seconds=0.3).run(bytes(1 << 20))


def test_the_environment_and_the_directory_are_the_given_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_SECRET_OF_A_TEST", "1")
    assert b"1\n" in shell("echo $GKM_SECRET_OF_A_TEST").run().output
    command = BoundedCommand(("/bin/sh", "-c", "env; pwd"), 20.0, 1000, environment={"A": "b"}, directory="/")
    lines = command.run().output.decode().splitlines()
    assert "A=b" in lines
    assert lines[-1] == "/"
    assert not [line for line in lines if "GKM" in line]


@pytest.mark.parametrize("own_session", [True, False])
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("while :; do echo xxxxxxxxxxxxxxxx; done", "prints more than 1000 bytes"),
        ("while :; do echo xxxxxxxxxxxxxxxx >&2; done", "gives no answer within"),
        ("exec sleep 600", "gives no answer within"),
        ("trap '' TERM INT HUP; while :; do sleep 1; done", "gives no answer within"),
        ("exec 1>&- 2>&-; exec sleep 600", "does not end"),
    ],
)
def test_a_program_beyond_its_bounds_is_killed(
    script: str, problem: str, monkeypatch: pytest.MonkeyPatch, *, own_session: bool
) -> None:
    monkeypatch.setattr(bounded_command, "KILL_SECONDS", 0.5)
    command = shell(script, seconds=0.5, capture_errors=True, own_session=own_session)
    with pytest.raises(RunFailed, match=problem):
        command.run()
    # On a busy machine a killed process may need longer to end than `run` waits for it.
    assert command._process is not None
    assert command._process.wait(scaled(60)) == -signal.SIGKILL


def test_standard_error_is_cut_off() -> None:
    result = shell(f"head -c {MAX_STDERR_BYTES * 40} /dev/zero >&2; echo end", capture_errors=True).run()
    assert result.output == b"end\n"
    assert len(result.errors) == MAX_STDERR_BYTES


@pytest.mark.parametrize("ending", ["wait", "exit 0"])
def test_the_children_of_a_program_are_killed_with_it(tmp_path: Path, ending: str) -> None:
    with pytest.raises(RunFailed, match="gives no answer within"):
        shell(f"sleep 600 & echo $! > {tmp_path}/child; {ending}", seconds=0.5).run()
    child = int((tmp_path / "child").read_text())
    until(lambda: has_ended(child), "the child has ended")


def test_without_its_own_session_a_program_stays_in_the_session_of_the_terminal() -> None:
    script = "ps -o sid= -p $$ 2>/dev/null || cut -d' ' -f6 /proc/$$/stat"
    assert int(shell(script, own_session=False).run().output) == os.getsid(0)
    assert int(shell(script).run().output) != os.getsid(0)


def test_a_run_is_cancelled_from_another_thread(tmp_path: Path) -> None:
    command = shell(f"touch {tmp_path}/runs; exec sleep 600", seconds=60)
    results: list[CommandResult] = []
    thread = Thread(target=lambda: results.append(command.run()))
    thread.start()
    until((tmp_path / "runs").exists, "the program runs")
    command.cancel()
    thread.join(scaled(20))
    assert [result.code for result in results] == [-9]
    command.cancel()  # without a run it does nothing


def test_a_cancel_counts_also_before_the_start_of_the_program_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    command = shell("exec sleep 600", seconds=60)

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 -- those of Popen
            super().__init__(*arguments, **options)
            command.cancel()  # the program runs, and Popen has not returned to `run`

    monkeypatch.setattr(subprocess, "Popen", Started)
    assert command.run().code == -9
    monkeypatch.undo()
    assert shell("exit 3").run().code == 3


def test_a_cancel_does_not_reach_the_next_run() -> None:
    command = shell("echo ended")
    command.cancel()
    assert command.run() == CommandResult(0, b"ended\n", b"")


def test_concurrent_runs_wait_for_one_another(tmp_path: Path) -> None:
    command = shell(f"mkdir {tmp_path}/alone && sleep 0.1 && rmdir {tmp_path}/alone")
    codes: list[int] = []
    threads = [Thread(target=lambda: codes.append(command.run().code)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0, 0, 0]


def test_a_program_that_does_not_exist_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="does not start: No such file or directory"):
        BoundedCommand((f"{tmp_path}/none",), 1, 1).run()


def test_a_pipe_that_cannot_be_watched_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may be at its limit of descriptors. Callers handle RunFailed, and no other error."""

    def exhausted() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("gkm.hoststate.bounded_command.selectors.DefaultSelector", exhausted)
    with pytest.raises(RunFailed, match="cannot be read: Too many open files"):
        BoundedCommand(["/bin/true"], 20.0, 100).run()


def test_no_second_program_starts_while_the_first_hangs_in_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not die stands for one in uninterruptible sleep, which a test cannot make."""
    monkeypatch.setattr(bounded_command, "KILL_SECONDS", 0.2)
    real = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        assert timeout is not None, "a wait without bound"
        return real(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    command = shell(f"echo $$ >> {tmp_path}/programs; exec sleep 600", seconds=0.5)
    with pytest.raises(RunFailed, match="gives no answer within"):
        command.run()
    for _ in range(3):
        with pytest.raises(RunFailed, match="still hangs in the kernel"):
            command.run()
    (program,) = map(int, (tmp_path / "programs").read_text().split())
    os.kill(program, 9)
    until(lambda: has_ended(program), "the program has ended")
    with pytest.raises(RunFailed, match="gives no answer within"):
        command.run()
    first, second = map(int, (tmp_path / "programs").read_text().split())
    assert first == program
    os.kill(second, 9)
    assert command._process is not None
    real(command._process, 20)
