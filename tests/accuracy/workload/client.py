#!/usr/bin/env python3
"""Sends requests to a loop that serves: each waits for its answer, then thinks for so many milliseconds.

usage: client.py PORT MS [MOST]

After MOST requests it stays connected and asks for nothing more.
"""

import signal
import socket
import sys
import time


def main():
    port, think = int(sys.argv[1]), float(sys.argv[2]) / 1000
    most = int(sys.argv[3]) if len(sys.argv) > 3 else None
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    asked = 0
    while asked != most:
        time.sleep(think)
        connection.sendall(b"next")
        asked += 1
        if not connection.recv(4, socket.MSG_WAITALL):
            return
    signal.pause()


if __name__ == "__main__":
    main()
