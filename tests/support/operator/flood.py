"""Clients without credentials that send bodies as large as they may be, all at once, and come back.

PORT COUNT SIZE WITHHELD are its arguments; the last WITHHELD bytes of each body are never sent. A process of its own:
200 clients in the test's own process would slow down the honest one beside them. Prints a line when all have connected
once, and ends when its standard input does; then it prints how many bodies were sent.
"""

import asyncio
import contextlib
import ssl
import sys

CHUNK = 64 << 10


sent = 0


async def _flood(port: int, head: bytes, body: bytes, started: asyncio.Semaphore) -> None:
    global sent  # noqa: PLW0603 -- one thread counts
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    first = True
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            if first:
                started.release()
                first = False
            try:
                writer.write(head)
                for at in range(0, len(body), CHUNK):
                    writer.write(body[at : at + CHUNK])
                    await writer.drain()
                sent += 1
                await reader.read(CHUNK)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0)


async def _main(port: int, count: int, size: int, withheld: int) -> None:
    head = f"POST /validate?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
    started = asyncio.Semaphore(0)
    body = b" " * (size - withheld)
    clients = [asyncio.create_task(_flood(port, head, body, started)) for _ in range(count)]
    for _ in range(count):
        await started.acquire()
    print("all have connected", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)
    print(sent, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*map(int, sys.argv[1:5])))
