#!/usr/bin/env python3
"""A gRPC server of data: each request is a size and a delay in microseconds; the answer is so many bytes after that.

usage: serve_grpc.py ADDRESS PORT
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from stages import REQUEST


def get(request, _context):
    size, delay = REQUEST.unpack(request)
    if delay:
        time.sleep(delay / 1e6)
    return bytes(size)


def main():
    server = grpc.server(ThreadPoolExecutor(4))
    method = grpc.unary_unary_rpc_method_handler(get)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("features.Features", {"Get": method})])
    server.add_insecure_port(f"{sys.argv[1]}:{sys.argv[2]}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
