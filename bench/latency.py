"""Job (f): time to the first byte over a path of 100 ms, in round trips.

A proxy holds every byte back by half the round trip in each direction (it delays connecting too, as SYN and SYN-ACK would be); it neither limits the
rate nor loses anything. Simulated delay on loopback: TCP's own slow start is not in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

ROUND_TRIP_S = 0.1


class DelayingProxy:
    """Listens on `port` and passes bytes on to `target`, each after half of the round trip."""

    def __init__(self, target: int):
        self.target = target
        self.port = 0
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client's connect() returned at once; a real one returns after a round trip. Its first bytes wait for that too.
        await asyncio.sleep(ROUND_TRIP_S)
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.target)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(self._pipe(reader, upstream_writer), self._pipe(upstream_reader, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - self.loop.time()))
                if not data:
                    with contextlib.suppress(OSError, RuntimeError):
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        while data := await reader.read(1 << 18):
            queue.put_nowait((self.loop.time() + ROUND_TRIP_S / 2, data))
        queue.put_nowait((self.loop.time() + ROUND_TRIP_S / 2, b""))
        await delivery

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
