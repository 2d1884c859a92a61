"""Hostile rows, classes 4 to 7: what lies in the layers of an image that is validly signed."""

import gzip
import tarfile

import images_hostile_layers as made
from images_archives import file, tree
from images_hostile_layers import INSIDE
from images_hostile_places import layer, members
from images_hostile_row import DAMAGED, LARGE, MAX_BYTES, MIB, UNSAFE, Row
from images_hostile_scene import GOOD

_OUT = ("leads elsewhere", "is absolute", "cannot be printed", "not UTF-8")
_GZ_GOOD = gzip.compress(GOOD, mtime=0)

SIZES = (
    Row("a gzip bomb", 4, layer(made.gzip_bomb(64 * MIB)), UNSAFE, "it is a bomb"),
    Row("a zstd bomb", 4, layer(made.zstd_bomb(64 * MIB)), UNSAFE, "it is a bomb"),
    Row(
        "more bytes than allowed",
        4,
        layer(gzip.compress(tree((INSIDE + "a", b"%9d" * MAX_BYTES)), 1)),
        LARGE,
        "larger than the 8388608 bytes",
    ),
    Row(
        "more bytes outside the cache",
        4,
        layer(tree(("elsewhere/a", made.noise(MIB)), (INSIDE + "a", b"1"))),
        LARGE,
        "unpacks to more than",
        bounds={"pulling.extract.OVERHEAD_BYTES": 4096 - MAX_BYTES},
    ),
    Row(
        "more files than allowed",
        4,
        layer(made.numbered(60)),
        LARGE,
        "more than 50 files",
        bounds={"pulling.extract.MAX_FILES": 50},
    ),
    Row(
        "more entries outside the cache",
        4,
        layer(made.numbered(60, "elsewhere/")),
        LARGE,
        "more than 50 entries",
        bounds={"pulling.extract.MAX_MEMBERS": 50},
    ),
    Row(
        "longer paths than allowed",
        4,
        layer(made.numbered(60)),
        LARGE,
        "longer than 50 bytes together",
        bounds={"pulling.extract.MAX_PATHS_BYTES": 50},
    ),
    Row("a cut gzip", 4, layer(_GZ_GOOD[:-10]), DAMAGED, "ends in the middle"),
    Row("a gzip with garbage behind it", 4, layer(_GZ_GOOD + b"garbage" * 20), DAMAGED, "cannot be decompressed"),
    Row(
        "a second archive behind the first",
        4,
        layer(_GZ_GOOD + gzip.compress(tree((INSIDE + "b", b"")))),
        UNSAFE,
        "behind the end of an archive",
    ),
    Row("pieces that yield nothing", 4, layer(_GZ_GOOD + gzip.compress(b"", mtime=0) * 2000), UNSAFE, "empty or tiny"),
    Row(
        "pieces that yield a byte",
        4,
        layer(made.pieces(200)),
        UNSAFE,
        "empty or tiny",
        bounds={"archives.inflate.MAX_MEMBERS": 100},
        would="unpacked half a megabyte a second, for 40 hours",
    ),
    Row("a zstd window of 1 GiB", 4, layer(made.wide_zstd()), DAMAGED, "more memory than decoders must have"),
    Row("a pax header of 65 KiB", 4, layer(made.pax(comment="x" * (65 << 10))), UNSAFE, "a header of"),
    Row("pax headers without end", 4, layer(made.extension(b"x", b"8 a=b12\n") * 1000), UNSAFE, "headers in a row"),
    Row(
        "a pax header of records without end",
        4,
        layer(made.extension(b"x", b"".join(b"8 %03d=1\n" % n for n in range(100))) + GOOD),
        UNSAFE,
        "more than 64 records",
        would="took time by the square of its length",
    ),
    Row("a sparse file", 4, layer(made.pax(**{"GNU.sparse.major": "1"})), UNSAFE, "a sparse file"),
    Row("an old sparse file", 4, members(file(INSIDE + "a", b"", kind=b"S")), UNSAFE, "an entry of type"),
    Row("a negative size", 4, layer(made.sized(b"-0000000001\0")), DAMAGED, "not octal"),
    Row("a size in base 256", 4, layer(made.sized(b"\x80" + b"\0" * 10 + b"\1")), DAMAGED, "not octal"),
    Row("a negative size in base 256", 4, layer(made.sized(b"\xff" * 12)), DAMAGED, "not octal"),
    Row(
        "two sizes of one file",
        4,
        layer(made.extension(b"x", b"13 size=1024\n") + made.named(INSIDE.encode() + b"a", b"x" * 512)),
        UNSAFE,
        "a file of two sizes",
        "CVE-2025-62518",
        "headers hidden in a file were read as members",
    ),
    Row("a damaged archive", 4, layer(b"not an archive" * 100), DAMAGED, "the archive in the image is damaged"),
    Row("a layer of nothing", 4, layer(b""), DAMAGED, "ends in the middle"),
    Row("no cache", 4, members(("somewhere/else", b"x")), DAMAGED, "it is empty"),
)
_SPELT = (
    ("dots", b"io.triton.cache/../../../../victim", _OUT[0]),
    ("dots at the end", b"io.triton.cache/a/..", _OUT[0]),
    ("dots outside the cache", b"../victim", _OUT[0]),
    ("an absolute name", b"/etc/cron.d/victim", _OUT[1]),
    ("two slashes", b"//etc/cron.d/victim", _OUT[1]),
    ("an empty part", b"io.triton.cache//victim", _OUT[0]),
    ("an empty name", b"", _OUT[0]),
    ("only a dot and a slash", b"./../x", _OUT[0]),
    ("a NUL", b"io.triton.cache/a\0/../../victim", _OUT[2]),
    ("a newline", b"io.triton.cache/a\nb", _OUT[2]),
    ("an escape sequence", b"io.triton.cache/\x1b[2Ja", _OUT[2]),
    ("letters that run backwards", "io.triton.cache/a\u202eb".encode(), _OUT[2]),
    ("bytes that are no text", b"io.triton.cache/\xff\xfe", _OUT[3]),
    ("17 directories", b"io.triton.cache/" + b"d/" * 16 + b"f", "deeper than 16"),
    ("1,025 bytes", b"io.triton.cache/" + (b"d" * 100 + b"/") * 9 + b"f" * 100, "longer than 1024 bytes"),
    ("256 bytes of one part", b"io.triton.cache/" + b"f" * 256, "a part longer than 255"),
)
NAMES = (
    *(Row(name, 5, layer(made.archive(made.named(path))), UNSAFE, says) for name, path, says in _SPELT),
    Row(
        "a directory that is the parent's",
        5,
        members(file(INSIDE + "..", b"", kind=tarfile.DIRTYPE, mode=0o777)),
        UNSAFE,
        _OUT[0],
        "CVE-2024-12718",
        "mode and time of a directory outside were changed",
    ),
    Row(
        "one bad name among good ones",
        5,
        members((INSIDE + "a", b"1"), (INSIDE + "../b", b"2"), (INSIDE + "c", b"3")),
        UNSAFE,
        _OUT[0],
        "CVE-2025-4435",
        "what a filter refused was extracted all the same",
    ),
    Row(
        "a sibling of the cache with its name in front",
        5,
        members(("io.triton.cache-evil/a", b"1")),
        DAMAGED,
        "it is empty",
    ),
    Row(
        "a name for all files",
        5,
        layer(made.extension(b"g", b"18 path=../victim\n") + GOOD),
        UNSAFE,
        "names all of its files",
    ),
)
KINDS = (
    Row("a symbolic link", 6, members(made.link("a", "/etc/passwd")), UNSAFE, "a symbolic link"),
    Row(
        "a link, then a file through it",
        6,
        members(made.link("d", "/tmp"), (INSIDE + "d/victim", b"x")),
        UNSAFE,
        "a symbolic link",
        "CVE-2025-4138",
        "links that led outside passed the filter",
    ),
    Row(
        "a link to a link",
        6,
        members(made.link("a", "b"), made.link("b", "../../victim", kind=tarfile.LNKTYPE)),
        UNSAFE,
        "a symbolic link",
        "CVE-2025-4330",
        "a link that the filter had changed was followed unchecked",
    ),
    Row(
        "links until realpath gives up",
        6,
        members(*made.chain(16)),
        UNSAFE,
        "a symbolic link",
        "CVE-2025-4517",
        "a file outside was written through links longer than PATH_MAX",
    ),
    Row(
        "a hard link",
        6,
        members(made.link("a", "../../victim", kind=tarfile.LNKTYPE, mode=0o777)),
        UNSAFE,
        "a hard link",
        "CVE-2021-32760",
        "the mode of the file that it led to was changed",
    ),
    Row("a character device", 6, members(file(INSIDE + "a", b"", kind=tarfile.CHRTYPE)), UNSAFE, "a device"),
    Row("a block device", 6, members(file(INSIDE + "a", b"", kind=tarfile.BLKTYPE)), UNSAFE, "a device"),
    Row("a named pipe", 6, members(file(INSIDE + "a", b"", kind=tarfile.FIFOTYPE)), UNSAFE, "a named pipe"),
    Row("a socket", 6, members(file(INSIDE + "a", b"", kind=b"s")), UNSAFE, "an entry of type"),
    Row("a setuid program", 6, members(file(INSIDE + "a", b"", mode=0o4755)), UNSAFE, "setuid"),
    Row("a setgid program", 6, members(file(INSIDE + "a", b"", mode=0o2755)), UNSAFE, "setuid"),
    Row("a whiteout", 6, members((INSIDE + ".wh.a", b"")), UNSAFE, "a whiteout"),
    Row("an opaque directory", 6, members((INSIDE + "d/.wh..wh..opq", b"")), UNSAFE, "a whiteout"),
    Row("a link outside the cache", 6, members(made.link("../elsewhere", "/etc")), UNSAFE, "a symbolic link"),
    Row(
        "a directory with content",
        6,
        layer(made.archive(made.named(INSIDE.encode() + b"d", made.named(b"../x"), kind=b"5"))),
        UNSAFE,
        "a directory with content",
    ),
)
CONFLICTS = (
    Row("a file twice", 7, members((INSIDE + "a", b"1"), (INSIDE + "a", b"2")), UNSAFE, "twice"),
    Row("a file in two layers", 7, layer(GOOD, GOOD), UNSAFE, "twice"),
    Row(
        "a file, then a directory",
        7,
        members((INSIDE + "a", b"1"), (INSIDE + "a/b", b"2")),
        UNSAFE,
        "as a file and a directory",
    ),
    Row(
        "a directory, then a file",
        7,
        members((INSIDE + "a/b", b"1"), (INSIDE + "a", b"2")),
        UNSAFE,
        "as a file and a directory",
    ),
    Row(
        "a file where the cache must be", 7, members((INSIDE[:-1], b"1"), (INSIDE + "a", b"2")), UNSAFE, "a file where"
    ),
    Row(
        "two descriptions of the entries",
        7,
        members(*[("io.triton.manifest/manifest.json", b"{}")] * 2, (INSIDE + "a", b"1")),
        UNSAFE,
        "twice",
    ),
)
