"""A proxy of the xroot protocol with faults: it delays some opens, and drops the connection soon after others.

    python faulty_proxy.py HOST:PORT TARGET_HOST:PORT SEED
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys

DELAYED = 0.01
DELAY_S = 60.0
DROPPED = 0.05
DROP_WITHIN_S = 0.05
HANDSHAKE_BYTES, HEADER_BYTES = 20, 24
KXR_OPEN = 3010


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes responses on."""
    while data := await reader.read(1 << 20):
        writer.write(data)
        await writer.drain()


async def requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chances: random.Random) -> None:
    """Passes requests on. Returns when the connection is to be dropped."""
    later = set()

    async def delayed(request: bytes) -> None:
        await asyncio.sleep(DELAY_S)
        writer.write(request)

    writer.write(await reader.readexactly(HANDSHAKE_BYTES))
    while True:
        header = await reader.readexactly(HEADER_BYTES)
        request = header + await reader.readexactly(int.from_bytes(header[20:24], "big"))
        chance = chances.random() if int.from_bytes(header[2:4], "big") == KXR_OPEN else 1.0
        if chance < DELAYED:
            task = asyncio.create_task(delayed(request))
            later.add(task)
            task.add_done_callback(later.discard)
            continue
        writer.write(request)
        await writer.drain()
        if chance < DELAYED + DROPPED:
            await asyncio.sleep(chances.uniform(0, DROP_WITHIN_S))
            return


async def main(address: str, target: str, seed: str) -> None:
    chances = random.Random(int(seed))
    host, port = address.rsplit(":", 1)
    target_host, target_port = target.rsplit(":", 1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(target_host, int(target_port))
        both = [asyncio.create_task(requests(reader, far_writer, chances)), asyncio.create_task(passed_on(far_reader, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        for end in (writer, far_writer):
            with contextlib.suppress(OSError):
                end.transport.abort()

    async with await asyncio.start_server(serve, host, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
