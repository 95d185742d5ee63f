"""Worker processes over sockets, each asked for a batch and awaited: by a loop that polls, or by one of coroutines."""

import multiprocessing
import select
import socket
import struct

from stages import BATCH, Chain


def _act(connection, stages):
    chain = Chain(stages)
    while connection.recv(4):
        data = chain()
        connection.sendall(struct.pack("<I", len(data)) + data)


def _connected():
    """The ends of a connection by way of the loopback address."""
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname())
    there, _ = listener.accept()
    for end in (here, there):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return here, there


def _start(stages, tcp=False):
    """Starts a worker; this end of its socket."""
    here, there = _connected() if tcp else socket.socketpair()
    multiprocessing.get_context("fork").Process(target=_act, args=(there, list(stages)), daemon=True).start()
    there.close()
    return here


class Actors:
    """The loop takes what comes first and asks that worker again: over connections (`tcp`) as programs of several machines
    do, of which one runs here.
    """

    def __init__(self, stages=(), actors=2, tcp=False):
        self.poll, self.ends = (select.epoll if tcp else select.poll)(), {}
        for _ in range(actors):
            here = _start(stages, tcp)
            here.sendall(b"next")
            self.poll.register(here, select.POLLIN)
            self.ends[here.fileno()] = here

    def next(self):
        number, _ = self.poll.poll()[0]
        end = self.ends[number]
        left = struct.unpack("<I", end.recv(4, socket.MSG_WAITALL))[0]
        while left:
            left -= len(end.recv(left))
        end.sendall(b"next")
        return BATCH


class Awaited:
    """A coroutine awaits one worker's batch, while another beats every `heartbeat_ms`, as programs that report do."""

    def __init__(self, stages=(), heartbeat_ms=100):
        # Here: workers that are started anew would import it, too.
        import asyncio

        end = _start(stages)
        self.loop, self.beats = asyncio.new_event_loop(), 0
        self.reader, self.writer = self.loop.run_until_complete(asyncio.open_unix_connection(sock=end))
        self.sleep = asyncio.sleep
        self.heart = self.loop.create_task(self._beat(heartbeat_ms / 1000))

    async def _beat(self, seconds):
        while True:
            await self.sleep(seconds)
            self.beats += 1

    async def _batch(self):
        self.writer.write(b"next")
        (size,) = struct.unpack("<I", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    def next(self):
        return self.loop.run_until_complete(self._batch())
