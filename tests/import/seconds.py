"""Time cut into the seconds of a recording."""

SECOND = 1_000_000_000


def seconds(start, end):
    """Seconds from `start` on, the last one as long as there is something left. A sliver is left out."""
    found = [(at, min(at + SECOND, end)) for at in range(start, end, SECOND)]
    return found[:-1] if len(found) > 1 and found[-1][1] - found[-1][0] < SECOND // 10 else found


def union(intervals):
    """Intervals as such that do not touch, in order."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def per_second(intervals, spans):
    """Nanoseconds of intervals in each second, added up."""
    sums = [0] * len(spans)
    start = spans[0][0]
    for begin, end in intervals:
        begin = max(begin, start)
        while begin < end and (number := (begin - start) // SECOND) < len(spans):
            sums[number] += max(min(end, spans[number][1]) - begin, 0)
            begin = spans[number][0] + SECOND
    return sums
