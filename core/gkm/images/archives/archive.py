"""A strict reader of tar streams: regular files and directories only.

The tarfile module's filters accept too much and are slow. This reader knows ustar, pax `path` and `size`, and GNU long
names (POSIX.1-2017 pax; GNU tar manual, "Basic Tar Format"), and refuses the rest.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from zlib import adler32

from gkm.api.errors import GKMError, Reason

BLOCK = 512
MAX_HEADER_BYTES = 64 << 10
"""Limit of bytes of one pax header or long name. Paths have at most 1,024 bytes; GKM ignores the other pax records."""
MAX_RECORDS = 64
"""Limit of records in one pax header; writers produce a dozen, and each costs time."""
MAX_EXTENSIONS = 4
"""Limit of extension headers before one member: a global header, a pax header, a long name and a long link."""
MAX_DIGITS = 18
"""The digits of a decimal number, which is so less than 2**60."""
_REGULAR = frozenset({b"0", b"\0", b"7"})
_DIRECTORY = b"5"
_LINKS = frozenset({b"1", b"2"})
_PAX, _PAX_GLOBAL, _GNU_NAME = b"x", b"g", b"L"
_SET_ID = 0o6000
_LARGEST_OCTAL = 0o77777777777
"""The value that some writers put into the size field when a size does not fit."""
_FORBIDDEN_GLOBAL_KEYS = frozenset({b"path", b"size", b"linkpath"})
"""The keys that a global pax header must not contain, because readers disagree on the members that they apply to."""
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a named pipe"}


class ByteStream:
    """A stream of bytes (an archive) that is read in portions of the sizes that the reader asks for."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._rest = memoryview(b"")
        self.position = 0

    def pieces(self, count: int) -> Iterator[memoryview]:
        """Yield exactly `count` bytes, in pieces of any size.

        Raises:
            GKMError: CONTENT_MISMATCH if the stream has fewer bytes.
        """
        while count:
            if not self._rest:
                part = next(self._parts, None)
                if part is None:
                    raise GKMError(Reason.CONTENT_MISMATCH, "a layer ends in the middle of a file")
                self._rest = memoryview(part)
            piece, self._rest = self._rest[:count], self._rest[count:]
            count -= len(piece)
            self.position += len(piece)
            yield piece

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes of the stream; raises as `pieces` does."""
        if len(self._rest) > count:  # the usual case, without a generator
            data, self._rest = bytes(self._rest[:count]), self._rest[count:]
            self.position += count
            return data
        return b"".join(self.pieces(count))

    def skip(self, count: int) -> None:
        """Skip `count` bytes of the stream; raises as `pieces` does."""
        for _ in self.pieces(count):
            pass

    def drain(self) -> None:
        """Read the stream to its end, so that checks of the whole stream run; only zeros may follow an archive.

        Raises:
            GKMError: UNSAFE_CONTENT for anything else, because another reader would continue and find more files.
        """
        for part in chain((self._rest,), self._parts):
            if bytes(part).strip(b"\0"):
                raise GKMError(Reason.UNSAFE_CONTENT, "the image has data after the end of an archive")


def joined(pieces: Iterator[memoryview]) -> memoryview:
    """Return all pieces as one: the first itself, if it is the only one.

    Not by `join`, whose list has 200 bytes for each piece: hostile compression can make a piece of every byte.
    """
    whole = next(pieces, memoryview(b""))
    following = next(pieces, None)
    if following is None:
        return whole
    buffer = bytearray(whole)
    buffer += following
    for piece in pieces:
        buffer += piece
    return memoryview(buffer)


@dataclass(frozen=True, slots=True)
class TarMember:
    """One file or directory of a tar stream. Its content follows in the stream."""

    name: bytes
    size: int
    directory: bool
    executable: bool


def members(stream: ByteStream, *, skip_links: bool = False) -> Iterator[tuple[TarMember, Iterator[memoryview]]]:
    """Yield each member of a tar stream with its content, in order; content that the caller does not read is skipped.

    `skip_links` skips links, for archives whose members are read in place: no code ever creates a link.

    Raises:
        GKMError: UNSAFE_CONTENT for a member that is no file and no directory, CONTENT_MISMATCH for a damaged
            archive.
    """
    name: bytes | None = None
    size: int | None = None
    extensions = 0
    while any(header := stream.read(BLOCK)):
        _verify_checksum(header)
        kind = header[156:157]
        stated = _number(header[124:136])
        if kind in (_PAX, _PAX_GLOBAL, _GNU_NAME):
            extensions += 1
            if extensions > MAX_EXTENSIONS:
                raise GKMError(
                    Reason.UNSAFE_CONTENT,
                    f"the image holds an archive with more than {MAX_EXTENSIONS} headers in a row",
                )
            data = _extension(stream, stated)
            if kind == _GNU_NAME:
                name = data.rstrip(b"\0")
                continue
            records = _pax(data)
            if kind == _PAX:
                name = records.get(b"path", name)
                size = _decimal(records[b"size"]) if b"size" in records else size
            elif not _FORBIDDEN_GLOBAL_KEYS.isdisjoint(records):
                raise GKMError(
                    Reason.UNSAFE_CONTENT, "the image holds a global pax header, which names all of its files at once"
                )
            continue
        extensions = 0
        if skip_links and kind in _LINKS and not stated:
            name = size = None
            continue
        member = _member(header, kind, name, _size(stated, size))
        name = size = None
        content = stream.pieces(member.size)
        yield member, content
        for _ in content:
            pass
        stream.skip(-member.size % BLOCK)
    stream.drain()


def _member(header: bytes, kind: bytes, name: bytes | None, size: int) -> TarMember:
    if kind not in _REGULAR and kind != _DIRECTORY:
        what = _KINDS.get(kind, f"an entry of type {kind!r}")
        raise GKMError(
            Reason.UNSAFE_CONTENT,
            f"the image holds {what} ({_quoted(name or header[:100])}); only files and directories are accepted",
        )
    if name is None:
        prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
        name = header[:100].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    # Before ustar, a file whose name ends in a slash was a directory.
    directory = kind == _DIRECTORY or (kind == b"\0" and name.endswith(b"/"))
    if directory and size:
        # Some readers skip such content, others read it as the next headers.
        raise GKMError(Reason.UNSAFE_CONTENT, f"the image holds a directory with content ({_quoted(name)})")
    mode = _number(header[100:108])
    if mode & _SET_ID and not directory:
        raise GKMError(Reason.UNSAFE_CONTENT, f"the image holds a setuid or setgid file ({_quoted(name)})")
    return TarMember(name, size, directory, bool(mode & 0o111))


def _size(stated: int, pax: int | None) -> int:
    """Return the size of a member; two different sizes hide headers from one reader or another (CVE-2025-62518).

    Raises:
        GKMError: UNSAFE_CONTENT.
    """
    if pax is None:
        return stated
    if stated not in (0, pax, _LARGEST_OCTAL):
        raise GKMError(Reason.UNSAFE_CONTENT, f"the image holds a file of two sizes, {stated} and {pax} bytes")
    return pax


def _extension(stream: ByteStream, size: int) -> bytes:
    if size > MAX_HEADER_BYTES:
        raise GKMError(
            Reason.UNSAFE_CONTENT,
            f"the image holds a pax or GNU header of {size} bytes, at most {MAX_HEADER_BYTES} are read",
        )
    data = stream.read(size)
    stream.skip(-size % BLOCK)
    return data


def _pax(data: bytes) -> dict[bytes, bytes]:
    records: dict[bytes, bytes] = {}
    start = 0
    while start < len(data):
        # No copy of the rest: it would take quadratic time.
        space = data.find(b" ", start, start + MAX_DIGITS + 1)
        end = start + (_decimal(data[start:space]) if space >= 0 else 0)
        if space < 0 or not space < end <= len(data) or data[end - 1 : end] != b"\n":
            raise GKMError(Reason.CONTENT_MISMATCH, "the archive in the image is damaged: a pax header is malformed")
        key, _, value = data[space + 1 : end - 1].partition(b"=")
        if key.startswith(b"GNU.sparse"):
            raise GKMError(Reason.UNSAFE_CONTENT, "the image holds a sparse file; only plain files are accepted")
        if key in records or len(records) >= MAX_RECORDS:
            raise GKMError(
                Reason.UNSAFE_CONTENT,
                f"the image holds a pax header with more than {MAX_RECORDS} records, or one of them twice",
            )
        records[key] = value
        start = end
    return records


def _verify_checksum(header: bytes) -> None:
    # The checksum counts its own field as spaces (POSIX.1-2017 pax, "ustar Interchange Format").
    # Adler-32's low half is one more than the sum of at most 256 bytes (RFC 1950, section 8.2): 20 times faster.
    total = sum((adler32(half) & 0xFFFF) - 1 for half in (header[:256], header[256:]))
    total += 8 * ord(" ") - sum(header[148:156])
    if total != _number(header[148:156]):
        raise GKMError(Reason.CONTENT_MISMATCH, "the archive in the image is damaged: a checksum is wrong")


def _number(field: bytes) -> int:
    """Return an octal number. GNU's base-256 form, for sizes over 8 GiB, is refused: pax `size` serves them."""
    digits = field.rstrip(b" \0").lstrip(b" ")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise GKMError(Reason.CONTENT_MISMATCH, "the archive in the image is damaged: a number is not octal")
    return int(digits, 8)


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > MAX_DIGITS:
        raise GKMError(Reason.CONTENT_MISMATCH, "the archive in the image is damaged: a number is not decimal")
    return int(digits)


def _quoted(name: bytes) -> str:
    return repr(name.split(b"\0", 1)[0][:80].decode("utf-8", "replace"))
