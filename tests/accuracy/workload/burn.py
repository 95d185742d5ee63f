#!/usr/bin/env python3
"""Computes until it is ended: a neighbour."""

while True:
    sum(number * number for number in range(10000))
