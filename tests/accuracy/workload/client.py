#!/usr/bin/env python3
"""Sends requests to a loop that serves: each waits for its answer, then thinks for so many milliseconds.

usage: client.py PORT MS
"""

import socket
import sys
import time


def main():
    port, think = int(sys.argv[1]), float(sys.argv[2]) / 1000
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    while True:
        time.sleep(think)
        connection.sendall(b"next")
        if not connection.recv(4, socket.MSG_WAITALL):
            return


if __name__ == "__main__":
    main()
