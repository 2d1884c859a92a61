"""Compression of layers: decompress a foreign one in small steps, compress ours deterministically.

A decompression bomb reaches its bound before it fills the memory.

The same content has the same bytes on every machine and for any split of the input. igzip is not deterministic: its
output depends on the pieces of the input (measured) and on the processor. zlib alone is slow, so several threads
compress blocks side by side, each with the end of the previous block as its dictionary. The result is one gzip member
of many deflate blocks (RFC 1951 section 3.2, RFC 1952 section 2.3), 0.6 % larger than one.
"""

import os
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

from isal import igzip_lib

from gkm.api.errors import GKMError, Reason

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


FEED_BYTES = 64 << 10
"""The compressed bytes of one step; with STEP_BYTES they bound its output."""
STEP_BYTES = 1 << 20
JOINED_BYTES = 64 << 10
"""Each chunk goes to another thread, which costs ten times as much as a tiny member: tiny chunks travel together."""
MAX_RATIO = 100
"""Limit of the ratio of decompressed to compressed size. Real caches have a ratio of 9, single files of 20."""
RATIO_SLACK_BYTES = 4 << 20
GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_MAGICS = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
"""A frame without content that decoders skip (RFC 8878, 3.1.2). pzstd writes one before each frame, also the first."""
_MAX_WINDOW_LOG = 23
"""8 MiB, which every decoder should support (RFC 8878, 3.1.1.1.2); the window is memory of this process."""
MAX_EMPTY_MEMBERS = 1024
"""Consecutive members or frames without output cost time and add no byte; writers produce a few at most."""
MAX_MEMBERS = 400_000
MEMBER_BYTES = 4096
"""Each member costs 20 microseconds for any output. Layers for partial reads (eStargz) have two for each file and
one for each few megabytes of a large one. The bound is MAX_MEMBERS, plus one for every MEMBER_BYTES of output."""
_Decompressor = igzip_lib.IgzipDecompressor | zstd.ZstdDecompressor
_DECODE_ERRORS: tuple[type[Exception], ...] = (
    igzip_lib.error,  # type: ignore[assignment]  # isal's stub calls the class an instance
    zstd.ZstdError,
    EOFError,
    ValueError,
)
BLOCK_BYTES = 512 << 10
LEVEL = 6
"""The gzip level. An image is written once and pulled by many nodes: level 1 is three times as fast as the default and
20 % larger (measured)."""
MAX_THREADS = 8
_DICTIONARY_BYTES = 32 << 10
# Magic, deflate, no flags, no time, no level, no operating system: the header does not depend on the machine.
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"


def inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the decompressed bytes of a layer in gzip, zstd or plain form; gzip members and zstd frames may be many.

    The first bytes decide, because the media type is only a claim, and docker archives state a wrong one.

    Raises:
        GKMError: UNSAFE_CONTENT beyond MAX_RATIO, CONTENT_MISMATCH for damaged or truncated data.
    """
    source = iter(parts)
    first = next(source, b"")
    make = _decompressor_factory(first)
    pieces = chain((first,), source)
    return pieces if make is None else _joined(_decompressed(pieces, make))


def _decompressor_factory(first: bytes) -> Callable[[], _Decompressor] | None:
    if first.startswith(GZIP_MAGIC):
        return lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    if first.startswith((_ZSTD_MAGIC, *_SKIPPABLE_MAGICS)):
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        return lambda: zstd.ZstdDecompressor(options=options)
    return None


def _decompressed(pieces: Iterable[bytes], make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    consumed = produced = members = empty = at_last_member = 0
    decompressor = make()
    for piece in pieces:
        consumed += len(piece)
        data = piece
        while True:
            if decompressor.eof:
                # Another member or frame may follow (RFC 1952 section 2.2, RFC 8878 section 3.1).
                data = decompressor.unused_data + data
                if not data:
                    break
                decompressor = make()
                members += 1
                empty = empty + 1 if produced == at_last_member else 0
                at_last_member = produced
                if empty > MAX_EMPTY_MEMBERS or members > MAX_MEMBERS + produced // MEMBER_BYTES:
                    raise GKMError(Reason.UNSAFE_CONTENT, "a layer is made of empty or tiny compressed pieces")
            chunk, data = _step(decompressor, data), b""
            produced += len(chunk)
            if produced > consumed * MAX_RATIO + RATIO_SLACK_BYTES:
                raise GKMError(
                    Reason.UNSAFE_CONTENT, f"a layer unpacks to more than {MAX_RATIO} times its size: it is a bomb"
                )
            if chunk:
                yield chunk
            if decompressor.needs_input and not decompressor.eof:
                break
    if not decompressor.eof:
        raise GKMError(Reason.CONTENT_MISMATCH, "a layer ends in the middle of its compressed data")


def _joined(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes, small chunks joined to JOINED_BYTES; larger ones are not copied."""
    small: list[bytes] = []
    size = 0
    for chunk in chunks:
        is_large = len(chunk) >= JOINED_BYTES
        if small and (is_large or size >= JOINED_BYTES):
            yield b"".join(small)
            small, size = [], 0
        if is_large:
            yield chunk
        else:
            small.append(chunk)
            size += len(chunk)
    if small:
        yield b"".join(small)


def _step(decompressor: _Decompressor, data: bytes) -> bytes:
    try:
        return decompressor.decompress(data, STEP_BYTES)
    except _DECODE_ERRORS as error:
        raise GKMError(
            Reason.CONTENT_MISMATCH,
            "a layer cannot be decompressed: it is damaged, or needs more memory than decoders must have",
        ) from error


def deflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of `parts` compressed as one gzip member; at most MAX_THREADS blocks are in memory at a time."""
    yield _HEADER
    check = size = 0
    dictionary = memoryview(b"")
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    pending: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(threads, "gkm-deflate") as pool:
        for block in _blocks(parts):
            check = zlib.crc32(block, check)
            size += len(block)
            pending.append(pool.submit(_deflate, block, dictionary))
            dictionary = block[-_DICTIONARY_BYTES:]
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    yield _LAST_BLOCK + struct.pack("<II", check, size & 0xFFFFFFFF)


def _deflate(block: memoryview, dictionary: memoryview) -> bytes:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=dictionary)
    return compressor.compress(block) + compressor.flush(zlib.Z_SYNC_FLUSH)


def _blocks(parts: Iterable[bytes]) -> Iterator[memoryview]:
    """Yield the content in blocks of one size, so that the result does not depend on the pieces of the input."""
    waiting: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= BLOCK_BYTES:
            content = memoryview(b"".join(waiting))  # the only copy
            end = size - size % BLOCK_BYTES
            yield from (content[start : start + BLOCK_BYTES] for start in range(0, end, BLOCK_BYTES))
            waiting, size = [content[end:]], size - end
    if size:
        yield memoryview(b"".join(waiting))
