"""What a scenario is: variants of one workload, and which difference between two of them is the truth of which cause."""

from dataclasses import dataclass, field

ALL = {}


@dataclass
class Process:
    """A program of a pod: a training loop (`config`), or the words of another program."""

    config: dict = None
    words: list = None
    processors: tuple = ()
    # Only these of the pod's devices; all by default.
    devices: tuple = None


@dataclass
class Pod:
    """A pod, the devices that it holds (by number within the variant), and the limits of its container."""

    name: str
    processes: list
    devices: tuple = (0,)
    limits: dict = field(default_factory=dict)
    probes: bool = True


@dataclass
class Variant:
    """One run: its pods, what else runs on the machine, and how slow the wire is (0: not slowed)."""

    pods: list
    # Replicas of each device; 1 is a whole device.
    replicas: int = 1
    wire_mbit: float = 0
    # Processes outside of every pod: (words, processors, device or None).
    others: list = field(default_factory=list)
    swap: bool = False
    # The slow disk's MB/s of reads and of writes, and milliseconds of latency.
    slow_disk: tuple = ()
    # Words of a fault of the simulated driver, injected when the loops are warm.
    fault: tuple = ()
    # For programs that write no report: seconds to measure.
    seconds: float = 0.0


@dataclass
class Cause:
    """A truth: what `pod` takes longer in variant `of` than in variant `less`, as a share of its time in the first one.
    What is the cause's is in no other truth of the pod.
    """

    names: tuple
    of: str
    less: str
    pod: str = "main"


@dataclass
class Case:
    """A scenario with its parameters drawn."""

    variants: dict
    causes: list = field(default_factory=list)
    # The right answer where no removal can give it: "no_stall", or (pod, "state/cause") by definition.
    no_stall: bool = False
    definitions: tuple = ()
    # The definitions are of the time that the device did not run, by its log; otherwise of all time.
    beside_active: bool = False
    parameters: dict = field(default_factory=dict)
    # Further lines of the daemon's configuration.
    settings: str = ""


@dataclass
class Scenario:
    """A scenario by its name. `make` is a function of a lab that gives a `Case`."""

    name: str
    title: str
    make: object
    quick: bool = False
    torch: bool = False
    # Where the right answer comes from: a `removal`, the device's `log` (it never waited), or a `definition`.
    truth: str = "removal"
    # The phase of the loop (`source`, `after`) that each pod's only cause holds up; empty where it is not as simple.
    phase: str = ""


def scenario(title, **words):
    """Registers a function of a lab that gives a `Case`. `title` says what goes on and what is right; the rest is as a
    `Scenario` has it.
    """

    def register(make):
        ALL[make.__name__] = Scenario(make.__name__, title, make, **words)
        return make

    return register


def trainer(lab, source=None, after=None, **device):
    """A loop's configuration. In a case's first variant it runs for `lab.seconds`, in the others for as many steps."""
    config = {"seconds": lab.seconds, "device": {"blocking": True, **device}, "source": source or {"kind": "inline"}}
    if after:
        config["after"] = after
    return config


def alone(config, limits=None, **more):
    """A variant of one pod with one loop."""
    return Variant([Pod("main", [Process(config)], limits=limits or {})], **more)
