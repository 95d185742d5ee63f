"""Faults of boards, and of what watches them."""

from parts import GPUS, STATES, Query, choice, limits, lines, number, page, row, rows, setting

N = 'cluster=~"$cluster", node=~"$node"'
G = N + ', gpu_uuid=~"$gpu"'
RATE, RANGE = "$__rate_interval", "$__range"
BAD, GOOD = STATES["idle"], STATES["active"]


def variables():
    return [
        choice("node", "node", 'label_values(warpmeter_build_info{cluster=~"$cluster"}, node)', "From the target's label `node`; without one, All finds every node."),
        choice("gpu", "GPU", f"label_values(warpmeter_gpu_up{{{N}}}, gpu_uuid)", "Physical GPUs."),
    ]


def faulty(panel, at=1):
    """Green below, vermilion from `at` on."""
    return limits(panel, GOOD, (at, BAD))


def overview(board):
    row(
        board, "Now",
        faulty(number("GPUs that cannot be read", "Lost, hung, or off the bus. The alert WarpmeterGpuLost says which; its page says what to do.",
                      [Query(f"count(warpmeter_gpu_up{{{G}}} == 0) or vector(0)", "GPUs", at_end=True)], "none")),
        faulty(number("Targets down", "Daemons that are not scraped, or answer 503 because their pipeline stands still. Time of their nodes is not measured.",
                      [Query(f'count(up{{job=~"(.+/)?warpmeter", {N}}} == 0) or vector(0)', "targets", at_end=True)], "none")),
        faulty(number("Sources down", "Sources of facts that give none: driver, host, pods. What only they can say is unknown; all else is right.",
                      [Query(f"count(warpmeter_source_up{{{N}}} == 0) or vector(0)", "sources", at_end=True)], "none")),
        limits(number("Sources degraded", "Sources that give less than they could. `warpmeter check` and /status say why, and what fixes it.",
                      [Query(f"sum(warpmeter_source_degraded{{{N}}})", "sources", at_end=True)], "none"), GOOD, (1, STATES["stalled"])),
        faulty(number("Conservation error", "Largest difference between a ledger's sum and the time that passed, over the range. Always 0: anything else is a defect of Warpmeter, and no bill should rest on that node.",
                      [Query(f"max(max_over_time(warpmeter_conservation_error_seconds{{{N}}}[{RANGE}]))", "seconds", at_end=True)], "s"), 1e-9),
        faulty(number("Row remapping failed", "Boards without spare rows of memory: replace them.",
                      [Query(f"sum(warpmeter_gpu_row_remap_failed{{{G}}})", "boards", at_end=True)], "none")),
    )


def faults(board):
    row(
        board, "Faults of boards",
        rows("GPUs", "Physical GPUs, by what they are and whether they can be read.",
             [(Query(f"max by (node, gpu_uuid, index, model, pci_bus_id, sharing) (warpmeter_gpu_info{{{G}, mig=\"\"}})"), None, None),
              (Query(f"max by (node, gpu_uuid) (warpmeter_gpu_up{{{G}}})"), "can be read", "bool_yes_no"),
              (Query(f"max by (node, gpu_uuid) (warpmeter_gpu_row_remap_pending{{{G}}})"), "remap pending", "bool_yes_no")],
             width=14, height=8, first=("node", "index", "gpu_uuid", "model", "sharing", "pci_bus_id")),
        rows("XID faults, since the daemon started", "What the driver reported, by NVIDIA's number. 48, 79, 95, 119: the board, drain and see the page of WarpmeterGpuXid. 13, 31, 43: most often the program. None is good.",
             [(Query(f"sum by (node, gpu_uuid, xid) (warpmeter_gpu_xid_errors_total{{{G}}})"), "faults", "none")], width=10, height=8, first=("node", "gpu_uuid", "xid"), sort="faults"),
        lines("XID faults", "Faults per hour, by number. A number appears with its first fault, so its first is only seen in the table.",
              [Query(f"sum by (gpu_uuid, xid) (increase(warpmeter_gpu_xid_errors_total{{{G}}}[1h]))", "XID {{xid}} {{gpu_uuid}}")], "none", low=0),
        lines("ECC errors", "Per hour. Corrected ones are harmless, and a steep rise foretells a failing board. Uncorrected ones end what ran there.",
              [Query(f"sum by (gpu_uuid) (increase(warpmeter_gpu_ecc_uncorrected_errors_total{{{G}}}[1h]))", "uncorrected {{gpu_uuid}}"),
               Query(f"sum by (gpu_uuid) (increase(warpmeter_gpu_ecc_corrected_errors_total{{{G}}}[1h]))", "corrected {{gpu_uuid}}")], "none", low=0),
        lines("Remapped rows", "Rows of memory replaced in the board's life, by the kind of error. Spare rows are few; a pending remap waits for a reset of the GPU.",
              [Query(f"sum by (gpu_uuid, cause) (warpmeter_gpu_remapped_rows_total{{{G}}})", "{{cause}} {{gpu_uuid}}"),
               Query(f"sum by (gpu_uuid) (warpmeter_gpu_row_remap_pending{{{G}}})", "pending {{gpu_uuid}}")], "none", low=0, steps=True),
        lines("PCIe replays", "Repeated transfers per hour. Steadily above 0: reseat the board, or check riser and slot.",
              [Query(f"sum by (gpu_uuid) (increase(warpmeter_gpu_pcie_replays_total{{{G}}}[1h]))", "{{gpu_uuid}}")], "none", low=0),
    )


def board_physics(board):
    row(
        board, "Clocks, heat, power",
        lines("Throttled, by reason", "Share of time in which clocks were held down, mean over the chosen GPUs; reasons overlap. sw_power_cap is how busy GPUs run. Thermal and brake reasons: airflow, power supply.",
              [Query(f"avg by (reason) (rate(warpmeter_gpu_throttled_seconds_total{{{G}}}[{RATE}]))", "{{reason}}")], "percentunit", low=0),
        lines("Temperature", "Core and memory. Throttling begins at the board's own limits, for memory often near 95 °C.",
              [Query(f"warpmeter_gpu_temperature_celsius{{{G}}}", "core {{gpu_uuid}}"), Query(f"warpmeter_gpu_memory_temperature_celsius{{{G}}}", "memory {{gpu_uuid}}")], "celsius"),
        lines("Power", "Power now, and the limit in force (dashed). A busy GPU far below its limit does little arithmetic.",
              [Query(f"warpmeter_gpu_power_watts{{{G}}}", "{{gpu_uuid}}"), Query(f"warpmeter_gpu_power_limit_watts{{{G}}}", "limit {{gpu_uuid}}")], "watt", low=0)
        .override_by_regexp("/^limit /", [setting("custom.lineStyle", {"fill": "dash", "dash": [10, 10]})]),
        lines("Energy, mean power", "Watts from the board's energy counter: exact means, where power is a reading of a moment.",
              [Query(f"sum by (gpu_uuid) (rate(warpmeter_gpu_energy_joules_total{{{G}}}[{RATE}]))", "{{gpu_uuid}}")], "watt", low=0),
        lines("Clocks", "Clocks of SMs and memory. SM clocks low under load: see throttling; low without load is how GPUs rest.",
              [Query(f"warpmeter_gpu_sm_clock_hertz{{{G}}}", "SM {{gpu_uuid}}"), Query(f"warpmeter_gpu_memory_clock_hertz{{{G}}}", "memory {{gpu_uuid}}")], "hertz", low=0),
        lines("Memory used", "Share of device memory in use, by device or MIG instance.",
              [Query(f"warpmeter_gpu_memory_used_bytes{{{G}}} / warpmeter_gpu_memory_capacity_bytes{{{G}}}", "{{gpu_uuid}} {{mig}}")], "percentunit", low=0, high=1),
        lines("PCIe", "Bytes per second between host and device. Near the link's rate while pods are stalled by transfer: pin memory, or move less.",
              [Query(f"sum by (gpu_uuid) (rate(warpmeter_gpu_pcie_receive_bytes_total{{{G}}}[{RATE}]))", "to {{gpu_uuid}}"), Query(f"sum by (gpu_uuid) (rate(warpmeter_gpu_pcie_transmit_bytes_total{{{G}}}[{RATE}]))", "from {{gpu_uuid}}")], "Bps", low=0),
        lines("NVLink", "Bytes per second between GPUs.",
              [Query(f"sum by (gpu_uuid) (rate(warpmeter_gpu_nvlink_receive_bytes_total{{{G}}}[{RATE}]))", "to {{gpu_uuid}}"), Query(f"sum by (gpu_uuid) (rate(warpmeter_gpu_nvlink_transmit_bytes_total{{{G}}}[{RATE}]))", "from {{gpu_uuid}}")], "Bps", low=0),
        lines("Use of the device", "Physical GPUs by whether work ran: used by known owners, unattributed, unknown, inactive. The stack is the GPUs watched.",
              [Query(f"sum(rate(warpmeter_gpu_used_seconds_total{{{G}}}[{RATE}]))", "used"), Query(f"sum(rate(warpmeter_gpu_unattributed_seconds_total{{{G}}}[{RATE}]))", "unattributed"),
               Query(f"sum(rate(warpmeter_gpu_use_unknown_seconds_total{{{G}}}[{RATE}]))", "use unknown"), Query(f"sum(rate(warpmeter_gpu_inactive_seconds_total{{{G}}}[{RATE}]))", "inactive")], GPUS, stacked=True, low=0)
        .override_by_name("used", [setting("color", {"mode": "fixed", "fixedColor": STATES["active"]})]).override_by_name("use unknown", [setting("color", {"mode": "fixed", "fixedColor": STATES["unknown"]})])
        .override_by_name("inactive", [setting("color", {"mode": "fixed", "fixedColor": STATES["idle"]})]).override_by_name("unattributed", [setting("color", {"mode": "fixed", "fixedColor": STATES["stalled"]})]),
        lines("Held by owners that are not pods", "Physical GPUs held by containers outside Kubernetes, Slurm jobs, systemd units and the host. On a Kubernetes node that is most often a forgotten process.",
              [Query(f"sum by (owner_kind, owner) (rate(warpmeter_owner_gpu_seconds_total{{{G}}}[{RATE}])) > 0", "{{owner_kind}} {{owner}}")], GPUS, stacked=True, low=0),
    )


def warpmeter(board):
    row(
        board, "Warpmeter itself",
        lines("Targets and sources up", "1: scraped, or gives facts. A source that was released on purpose, or is not wanted, has no line.",
              [Query(f'min by (node) (up{{job=~"(.+/)?warpmeter", {N}}})', "target {{node}}"), Query(f"min by (source) (warpmeter_source_up{{{N}}})", "source {{source}}")], "bool_yes_no", low=0, high=1, steps=True),
        lines("Age of a source's last fact", "Worst node of each source. The host and the driver tell something every window; pods when something changes, and every 10 seconds.",
              [Query(f"max by (source) (time() - warpmeter_source_last_fact_timestamp_seconds{{{N}}})", "{{source}}")], "s", low=0),
        lines("Window lag", "How old the last reading of a GPU's counters is, by GPU: one window and one scrape interval are normal. It grows when a driver call hangs.",
              [Query(f"time() - warpmeter_gpu_last_reading_timestamp_seconds{{{G}}}", "{{gpu_uuid}}")], "s", low=0),
        lines("Windows per second and GPU", "1 with windows of one second. Less: windows are longer, or a GPU is not read.",
              [Query(f"sum by (node) (rate(warpmeter_windows_total{{{N}}}[{RATE}])) / (count by (node) (warpmeter_gpu_up{{{N}}} == 1) > 0)", "{{node}}")], "none", low=0),
        lines("CPU of the daemon's processes", "Cores, over the chosen nodes: the pipeline and each source's own process. The aim is at most 1 % of one core per node.",
              [Query(f"sum by (source) (rate(warpmeter_source_cpu_seconds_total{{{N}}}[{RATE}]))", "{{source}}")], "percentunit", stacked=True, low=0),
        lines("Memory of the daemon's processes", "Resident bytes, over the chosen nodes. Flat over days, or it is a defect.",
              [Query(f"sum by (source) (warpmeter_source_resident_bytes{{{N}}})", "{{source}}")], "bytes", stacked=True, low=0),
        lines("Facts", "Facts per second by source, and those lost on their way. Lost: the daemon has too little CPU.",
              [Query(f"sum by (source) (rate(warpmeter_source_facts_total{{{N}}}[{RATE}]))", "{{source}}"), Query(f"sum by (source) (rate(warpmeter_source_facts_lost_total{{{N}}}[{RATE}]))", "lost {{source}}")], "cps", low=0),
        lines("Values left out, by reason", "Per hour: values that cannot be right, or came too late. Some sentinels are normal on boards that lack a sensor.",
              [Query(f"sum by (source, reason) (increase(warpmeter_source_values_discarded_total{{{N}}}[1h]))", "{{source}} {{reason}}")], "none", low=0),
        lines("Duration of a round", "How long a source takes to read everything once. Near the window's length: the driver is slow, or there are very many processes.",
              [Query(f"sum by (source) (rate(warpmeter_source_poll_seconds_total{{{N}}}[{RATE}])) / (sum by (source) (rate(warpmeter_source_polls_total{{{N}}}[{RATE}])) > 0)", "{{source}}")], "s", low=0),
        lines("Conservation error, by node", "Largest difference between a ledger and the time that passed: always 0. A line that rises is a defect of Warpmeter.", [Query(f"max by (node) (warpmeter_conservation_error_seconds{{{N}}})", "{{node}}")], "s", low=0),
        rows("Versions", "What runs where.", [(Query(f"count by (version) (warpmeter_build_info{{{N}}})"), "nodes", "none")], width=8, height=6, first=("version",)),
        rows("Drivers", "Versions of the NVIDIA driver.", [(Query(f"count by (driver, nvml, cuda) (warpmeter_driver_info{{{N}}})"), "nodes", "none")], width=16, height=6, first=("driver", "nvml", "cuda")),
    )


def probes(board):
    P = f'{N}, source="probes"'
    row(
        board, "Probes (causes of stalls)",
        number("Nodes with probes", "Daemons that probe the CUDA driver library and the scheduler. Only on these do stalls have causes.",
               [Query(f"count(warpmeter_source_up{{{P}}} == 1) or vector(0)", "nodes", at_end=True)], "none"),
        number("Nodes without", "Daemons without probes: switched off, no capability, or an older kernel; /status and `warpmeter check` say which. Stalls there are unknown/no_evidence.",
               [Query(f"count(warpmeter_build_info{{{N}}} unless on (cluster, node, instance) warpmeter_source_up{{{P}}} == 1) or vector(0)", "nodes", at_end=True)], "none"),
        limits(number("Nodes with degraded probes", "Probes that give less than they could: no ends of calls on Linux 6.11 to 6.13, launches shed because there are too many, a library that cannot be probed. /status says what.",
                      [Query(f"sum(warpmeter_source_degraded{{{P}}})", "nodes", at_end=True)], "none"), GOOD, (1, STATES["stalled"])),
        lines("Probes up, by node", "1: they give facts. Switched off or not wanted: no line.", [Query(f"min by (node) (warpmeter_source_up{{{P}}})", "{{node}}")], "bool_yes_no", low=0, high=1, steps=True),
        lines("Facts of probes lost", "Per second: lost in the kernel's maps or on their way. Time of which facts are lost is unknown/no_evidence.",
              [Query(f"sum by (node) (rate(warpmeter_source_facts_lost_total{{{P}}}[{RATE}]))", "{{node}}")], "cps", low=0),
        lines("CPU of the bpf process, by node", "Share of one core of the process that reads the probes. What the probes themselves take is in the probed programs' own time.",
              [Query(f"sum by (node) (rate(warpmeter_source_cpu_seconds_total{{{P}}}[{RATE}]))", "{{node}}")], "percentunit", low=0),
        lines("Memory of the bpf process, by node", "Resident bytes; maps in the kernel are not among them. Flat over days, or it is a defect.",
              [Query(f"sum by (node) (warpmeter_source_resident_bytes{{{P}}})", "{{node}}")], "bytes", low=0),
    )


def build():
    board = page("warpmeter-health", "Warpmeter / Nodes and devices", "Faults of GPUs, and of what watches them.", variables())
    for part in (overview, faults, board_physics, probes, warpmeter):
        part(board)
    return board
