#!/usr/bin/env python3
"""A server of data: each request is a size and a delay in microseconds; the answer is so many bytes after that. Of the size
0 the second is a port of the one that asks: it is connected to and sent data without end.

usage: serve.py ADDRESS PORT
"""

import socket
import sys
import threading
import time

from stages import REQUEST

BLOCK = bytes(1 << 20)


def answer(connection):
    try:
        answer_all(connection)
    except ConnectionError:
        # The one that asked has ended.
        connection.close()


def answer_all(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while len(request := connection.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
        size, delay = REQUEST.unpack(request)
        if not size:
            push(connection.getpeername()[0], delay)
        if delay:
            time.sleep(delay / 1e6)
        while size:
            part = min(size, len(BLOCK))
            connection.sendall(memoryview(BLOCK)[:part])
            size -= part


def push(address, port):
    with socket.create_connection((address, port)) as connection:
        while True:
            connection.sendall(BLOCK)


def main():
    listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
