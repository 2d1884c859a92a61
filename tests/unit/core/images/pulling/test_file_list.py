"""files.json: one JSON object for a reader of the whole file, one line for each file for a streaming reader."""

import gc
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from gkm.hoststate.files import UnreadableState
from gkm.images.pulling import file_list as listing
from gkm.images.pulling.file_list import FileList, ListedFile, SpooledFileList

FILES = [ListedFile("K/a.cubin", 3, "a" * 64), ListedFile('K/"ö\\.so', 0, "b" * 64, executable=True)]


def spooled(directory: Path, *files: ListedFile) -> SpooledFileList:
    made = SpooledFileList(directory)
    for file in files:
        made.append(file)
    return made


@pytest.mark.parametrize("files", [[], FILES[:1], FILES])
def test_a_written_list_is_readable_and_is_json(tmp_path: Path, files: list[ListedFile]) -> None:
    listing.write(tmp_path / "l", FileList("sha256:1", "triton", 3, spooled(tmp_path, *files)))
    assert listing.read(tmp_path / "l") == (FileList("sha256:1", "triton", 3, []), len(files))
    whole = json.loads((tmp_path / "l").read_text())
    assert list(whole) == ["digest", "format", "sizeBytes", "files"]
    assert [file["path"] for file in whole["files"]] == [file.path for file in files]


def test_a_list_returns_its_files_in_their_order(tmp_path: Path) -> None:
    made = spooled(tmp_path, *FILES)
    assert (list(made), list(made), len(made)) == (FILES, FILES, 2)
    assert FILES[1] in made
    assert ListedFile("K/a.cubin", 4, "a" * 64) not in made
    made.append(FILES[0])
    assert list(made) == [*FILES, FILES[0]]
    assert not list(tmp_path.iterdir())


def test_a_list_that_the_error_of_a_refused_image_holds_closes_without_a_warning(tmp_path: Path) -> None:
    """A warning here appeared in the middle of another test, wherever the collector of garbage ran."""

    def refuse() -> None:
        files = spooled(tmp_path, *FILES)
        try:
            raise ValueError(files)  # noqa: TRY301 -- the cycle is the test
        except ValueError as error:
            files.cycle = error  # type: ignore[attr-defined]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refuse()
        gc.collect()
    assert caught == []


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw + b"{}\n",
        lambda raw: raw + b"x",
        lambda raw: raw.replace(b'"size":3', b'"size":"3"'),
        lambda raw: raw.replace(b'"path":"K/a.cubin",', b""),
        lambda raw: raw.replace(b"},\n", b"}\n"),
        lambda raw: raw.replace(b"}\n]", b"},\n]"),
        lambda raw: raw.replace(b"a.cubin", b"a" * (20 << 10)),
        lambda raw: b"\xff" + raw,
        lambda _: b"",
        lambda _: b"{" * 100_000,
    ],
)
def test_a_list_that_was_changed_is_damage(tmp_path: Path, change: object) -> None:
    path = tmp_path / "l"
    listing.write(path, FileList("sha256:1", "triton", 3, FILES))
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(UnreadableState, match=str(path)):
        listing.read(path)


def test_a_list_that_is_no_regular_file_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("/etc/passwd")
    (tmp_path / "d").mkdir()
    for name, problem in (("l", "symbolic links"), ("d", "not a regular file")):
        with pytest.raises(UnreadableState, match=f"/{name}: .*{problem}"):
            listing.read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        listing.read(tmp_path / "nothing")


LARGEST = """
import sys
from pathlib import Path
from gkm.images.pulling import file_list as listing
from gkm.images.pulling.file_list import FileList, ListedFile, SpooledFileList
directory = Path(sys.argv[1])
def peak():  # ru_maxrss begins with the peak of the process that starts this one
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
files = SpooledFileList(directory)
for number in range(200_000):
    files.append(ListedFile(f"{'K' * 52}{number // 8}/{'n' * 90}{number}", 1, "a" * 64))
listing.write(directory / "files.json", FileList("sha256:1", "triton", 1, files))
print(listing.read(directory / "files.json")[1])
print(peak() - before)
"""


def test_the_largest_list_needs_little_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LARGEST, tmp_path], capture_output=True, text=True, check=True)
    count, kibibytes = map(int, done.stdout.split())
    assert count == 200_000
    assert (tmp_path / "files.json").stat().st_size > 40 << 20
    assert kibibytes < 8 << 10
