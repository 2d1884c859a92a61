"""Programs of the node: bounded in time and output, whatever they do."""

import os
from pathlib import Path
from threading import Thread

import pytest
from gkm_agent.fabric.command import Command, FabricCommandFailed, find
from support.host.waiting import scaled, until


def shell(script: str, seconds: float = 20.0, max_bytes: int = 1000) -> Command:
    return Command(("/bin/sh", "-c", script), seconds, max_bytes)


def test_the_output_is_returned() -> None:
    assert shell("echo one; echo two >&2; echo three").run().output == b"one\nthree\n"


def test_it_sees_no_variable_of_ours_and_starts_in_the_root() -> None:
    os.environ["GKM_SECRET_OF_A_TEST"] = "1"
    try:
        lines = shell("env; pwd").run().output.decode().splitlines()
    finally:
        del os.environ["GKM_SECRET_OF_A_TEST"]
    assert "LC_ALL=C" in lines
    assert lines[-1] == "/"
    assert not [line for line in lines if "GKM" in line]


def test_one_that_fails_is_not_believed_and_its_complaint_is_one_bounded_line() -> None:
    with pytest.raises(FabricCommandFailed) as caught:
        shell("echo half an answer; printf 'no\\nluck\\033 '; printf 'no\\nluck\\033%01000d' 7 >&2; exit 3").run()
    assert str(caught.value).startswith("sh ended with 3: no luck?")
    assert len(str(caught.value)) < 250


def test_one_that_prints_too_much_is_ended() -> None:
    with pytest.raises(FabricCommandFailed, match="sh prints more than 1000 bytes"):
        shell("while :; do echo xxxxxxxxxxxxxxxx; done").run()


def test_one_that_complains_without_end_is_bounded_by_its_time() -> None:
    with pytest.raises(FabricCommandFailed, match="no answer within"):
        shell("while :; do echo xxxxxxxxxxxxxxxx >&2; done", seconds=0.3).run()


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(FabricCommandFailed, match=r"sh gives no answer within 0.5 s"):
        shell(f"sleep 600 & echo $! > {tmp_path}/child; wait", seconds=0.5).run()
    child = int((tmp_path / "child").read_text())
    until(lambda: _is_gone(child), "what it started is ended")


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_one_that_leaves_a_child_with_its_output_is_ended_with_it(tmp_path: Path) -> None:
    with pytest.raises(FabricCommandFailed, match="no answer within"):
        shell(f"sleep 600 & echo $! > {tmp_path}/child", seconds=0.5).run()
    child = int((tmp_path / "child").read_text())
    until(lambda: _is_gone(child), "what it started is ended")


def test_a_run_is_cancelled_from_another_thread(tmp_path: Path) -> None:
    command = shell(f"touch {tmp_path}/runs; exec sleep 600", seconds=60)
    caught: list[FabricCommandFailed] = []

    def run() -> None:
        try:
            command.run()
        except FabricCommandFailed as error:
            caught.append(error)

    thread = Thread(target=run)
    thread.start()
    until((tmp_path / "runs").exists, "it runs")
    command.cancel()
    thread.join(scaled(20))
    assert str(caught[0]).startswith("sh ended with -9")


def test_a_program_that_cannot_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FabricCommandFailed, match="none does not start: No such file or directory"):
        Command((f"{tmp_path}/none",), 1, 1).run()


def test_a_program_is_the_configured_one_or_the_first_candidate_that_is_there(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o755)
    (tmp_path / "plain").touch(mode=0o644)
    assert find("", (str(tmp_path / "none"), str(program))) == str(program)
    assert find("/bin/sh", (str(program),)) == "/bin/sh"
    assert find(str(tmp_path / "none"), (str(program),)) is None
    assert find("", ()) is None
