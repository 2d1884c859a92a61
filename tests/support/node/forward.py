"""Forwards TCP from one address to another: `python -m support.node.forward ADDRESS PORT TO-PORT` (to 127.0.0.1).

It stands where kube-proxy would, for the one Service that every pod expects: the API server's.
"""

import asyncio
import contextlib
import sys


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def serve(address: str, port: int, to_port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    server = await asyncio.start_server(connected, address, port)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
