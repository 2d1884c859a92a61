"""Messages on a stream socket: a length of four bytes, and that many bytes."""

HEADER_BYTES = 4


def frame(data: bytes) -> bytes:
    """Return a message with its length in four bytes before it."""
    return len(data).to_bytes(HEADER_BYTES, "big") + data


def size_of(header: bytes | bytearray) -> int:
    """Return the length of the message that follows a header."""
    return int.from_bytes(header[:HEADER_BYTES], "big")
