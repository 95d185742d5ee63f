"""What a thread does: the classes of the facts, in their order there."""

NAMES = ("cpu", "cpu_wait", "disk_read", "disk_write", "network", "request", "memory", "lock", "poll", "timer", "unknown")
CPU, CPU_WAIT, DISK_READ, DISK_WRITE, NETWORK, REQUEST, MEMORY, LOCK, POLL, TIMER, UNKNOWN = range(len(NAMES))
COUNT = len(NAMES)

# In a call that waits for the device: none of the classes.
DRIVER = COUNT
