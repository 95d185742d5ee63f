"""What the pods of a namespace or workload do with what they hold, and why not more."""

from parts import BORROWED, GPUS, MONEY, Query, STARVED, bars, by_activity, by_cause, by_class, by_state, choice, fixed, lines, money, number, page, row, rows, setting

S = 'cluster=~"$cluster", namespace=~"$namespace", pod=~"$pod"'
# One container on one device.
ACCOUNT = "cluster, namespace, pod, pod_uid, container, gpu_uuid, mig"
RATE, RANGE = "$__rate_interval", "$__range"


def variables():
    return [
        choice("namespace", "namespace", 'label_values(warpmeter_pod_info{cluster=~"$cluster"}, namespace)', "Namespaces of pods that held a GPU in the range."),
        choice("workload", "workload", 'label_values(pod:warpmeter_attributes:last15m{cluster=~"$cluster", namespace=~"$namespace"}, workload)', "Deployment, Job and so on. It narrows the choice of pods."),
        choice("pod", "pod", 'label_values(pod:warpmeter_attributes:last15m{cluster=~"$cluster", namespace=~"$namespace", workload=~"$workload"}, pod)', "All means those of the workload.", everything=None),
    ]


def total(metric, more="", by=""):
    return f"sum{by}(increase({metric}{{{S}{more}}}[{RANGE}]))"


def share(metric, denominator="warpmeter_pod_profiled_seconds_total"):
    """A counter of activity over the time for which it was valid."""
    return f"sum(rate({metric}{{{S}}}[{RATE}])) / (sum(rate({denominator}{{{S}}}[{RATE}]) and on ({ACCOUNT}) {metric}{{{S}}}) > 0)"


def overview(board):
    row(
        board, "Now",
        number("Held", "Physical GPUs that the pods hold now. A MIG instance of 1 of 7 slices is 0.14, one of 4 replicas 0.25.", [Query(f"sum(warpmeter_pod_allocated_gpus{{{S}}})", "held", at_end=True)], GPUS, decimals=2),
        number("Utilisation, 30 minutes", "Work done over what is held, where it is known: SM-active where there is such a counter, else engine-active. Below 30 % there is an alert, unless memory bandwidth is the limit.",
               [Query(f"sum(pod:warpmeter_used_gpus:rate30m{{{S}}}) / (sum(pod:warpmeter_known_gpus:rate30m{{{S}}}) > 0)", "utilisation", at_end=True)], "percentunit", decimals=1),
        money(number("Cost per hour", "What the held GPUs cost now.", [Query(f"sum by (currency) (rate(warpmeter_pod_cost_total{{{S}}}[{RATE}])) * 3600", "{{currency}}", at_end=True)], "none", decimals=2, empty="no price")),
        money(number("Cost in the range", "What they cost over the dashboard's time range. Pods that are gone are in it as far as two scrapes saw them.", [Query(total("warpmeter_pod_cost_total", by=" by (currency) "), "{{currency}}", at_end=True)], "none", decimals=2, empty="no price")),
        money(number("Of that, bought no work", "Over the time range: cost of time that is known to have done no work. The causes below say what would have to change.",
                     [Query(f"sum by (currency) (sum_over_time(pod:warpmeter_unused_cost_per_hour:rate30m{{{S}}}[{RANGE}:1m])) / 60", "{{currency}}", at_end=True)], "none", decimals=2, empty="no price")),
        number("Unknown, in the range", "Share of held time of which it is not known whether work ran (source_lost, conflict). Judge nobody by the rest if this is large: see node and device health.",
               [Query(f'{total("warpmeter_pod_gpu_seconds_total", more=", cause=~" + chr(34) + "source_lost|conflict" + chr(34))} / ({total("warpmeter_pod_gpu_seconds_total")} > 0)', "unknown", at_end=True)], "percentunit", decimals=1),
    )


def time(board):
    held = [fixed("text"), setting("custom.fillOpacity", 0), setting("custom.lineWidth", 2), setting("custom.stacking", {"mode": "none", "group": "B"})]
    causes = by_cause(lines(
        "Held time by state and cause", """Physical GPUs; the stack reaches what is held. disk_read, disk_write, network, cpu, cpu_wait, memory, lock: starved of data (more loader workers, faster storage, CPU limits).
        transfer: copies (pin memory, overlap). launch: tiny kernels (fuse, CUDA graphs). sync: waiting for results. contended: neighbours. no_evidence: not working, reason not known.""",
        [Query(f"sum by (state, cause) (rate(warpmeter_pod_gpu_seconds_total{{{S}}}[{RATE}])) > 0", "{{state}} {{cause}}"), Query(f"sum(warpmeter_pod_allocated_gpus{{{S}}})", "held")],
        GPUS, width=16, height=11, stacked=True, low=0))
    causes.override_by_name("held", held)
    row(
        board, "Where the time goes",
        causes,
        by_cause(bars("In the range, by cause", "GPU seconds of each cause over the time range, largest amounts first to be looked at. Causes that did not occur are left out.",
                      [Query(f'sort_desc(sum by (state, cause) (increase(warpmeter_pod_gpu_seconds_total{{{S}}}[{RANGE}])) > 0)', "{{state}} {{cause}}", at_end=True)], "s", width=8, height=11, decimals=1)),
    )


def starvation(board):
    row(
        board, "Starved of data",
        by_cause(lines("Share of held time that waits for data, by cause", """Above 25 % for 30 minutes WarpmeterDataStarved fires; its page has what helps against each cause. A share that moves from one cause to the next after a change: the next bottleneck.
                       No line: nothing of the kind, or no probes on the node; then that time is unknown/no_evidence.""",
                       [Query(f"sum by (cause) (rate(warpmeter_pod_gpu_seconds_total{{{S}, {STARVED}}}[{RATE}])) / on () group_left () (sum(rate(warpmeter_pod_gpu_seconds_total{{{S}}}[{RATE}])) > 0) > 0", "{{cause}}")],
                       "percentunit", width=16, stacked=True, low=0, high=1)),
        money(by_cause(bars("Money lost to waiting for data, by cause", "What that time cost, over the time range.",
                            [Query(f"sum by (cause, currency) (sum_over_time(pod_cause:warpmeter_starved_cost_per_hour:rate30m{{{S}}}[{RANGE}:1m])) / 60", "{{cause}} {{currency}}", at_end=True)], "none", width=8, decimals=2))),
        by_cause(lines("What the pods' threads do", """Threads at each moment, outside the CUDA driver. callers call the driver; others are mostly loaders. Needs [metrics] level = full. Callers wait (lock, poll) while others are busy with
                       one thing: that thing is the bottleneck. poll, timer, request: waiting for others, for time, for requests.""",
                       [Query(f"sum by (threads, doing) (rate(warpmeter_pod_host_thread_seconds_total{{{S}}}[{RATE}])) > 0", "{{threads}} {{doing}}")], "suffix:threads", width=24, stacked=True, low=0)),
    )


def waterfall(board):
    ratio = f"""clamp_max(sum by ({ACCOUNT}) (increase(warpmeter_pod_sm_active_seconds_total{{{S}}}[{RANGE}]))
      / (sum by ({ACCOUNT}) (increase(warpmeter_pod_gpu_seconds_total{{{S}, state="active"}}[{RANGE}])) > 0), 1)"""
    active = f'sum by ({ACCOUNT}, currency) (increase(warpmeter_pod_cost_total{{{S}, state="active"}}[{RANGE}]))'
    row(
        board, "The waterfall",
        by_activity(bars("GPU time: held, active, engine, SM active, SM occupied", """Each bar is what is left of the one above. Held to active: idle, stalled and unknown time. Active to engine: more when time was borrowed on a shared GPU.
                         Engine to SM active: kernels that fill few SMs (batch size, grid size). SM active to occupied: few warps per SM; often no fault in a tuned kernel.""",
                         [Query(total("warpmeter_pod_gpu_seconds_total"), "allocated", at_end=True), Query(total("warpmeter_pod_gpu_seconds_total", ', state="active"'), "active", at_end=True),
                          Query(total("warpmeter_pod_gpu_used_seconds_total"), "engine active", at_end=True), Query(total("warpmeter_pod_sm_active_seconds_total"), "SM active", at_end=True),
                          Query(total("warpmeter_pod_sm_occupied_seconds_total"), "SM occupied", at_end=True)], "s", width=12, height=8, decimals=1)),
        money(by_activity(bars("Money: held, active, SM active", "The same in money, as far as it goes: money follows time down to SM active, and occupancy has no price. Only pods with a price and an SM counter are in the last bar.",
                               [Query(total("warpmeter_pod_cost_total", by=" by (currency) "), "allocated {{currency}}", at_end=True), Query(total("warpmeter_pod_cost_total", ', state="active"', " by (currency) "), "active {{currency}}", at_end=True),
                                Query(f"sum by (currency) ({active} * on ({ACCOUNT}) group_left () {ratio})", "SM active {{currency}}", at_end=True)], "none", width=12, height=8, decimals=2))),
        by_activity(lines("Activity of the SMs, tensor pipes and memory", """Shares of held time with valid counters. SM active high and tensor low on a training job: no mixed precision, or bound elsewhere. DRAM near 1: bound by memory bandwidth, few SMs are enough.
                          Low intensity: SMs busy while tensor pipes and memory do next to nothing, as spinning collectives do.""",
                          [Query(share("warpmeter_pod_sm_active_seconds_total"), "SM active"), Query(share("warpmeter_pod_sm_occupied_seconds_total"), "SM occupied"), Query(share("warpmeter_pod_tensor_active_seconds_total"), "tensor"),
                           Query(share("warpmeter_pod_dram_bandwidth_seconds_total"), "DRAM"), Query(share("warpmeter_pod_low_intensity_active_seconds_total"), "low intensity")], "percentunit", low=0, high=1)),
        lines("Utilisation for autoscalers, by pod", "warpmeter_pod_gpu_utilization_ratio: activity over the last 60 seconds as a share of what the pod holds. No line means unknown, not zero.",
              [Query(f"warpmeter_pod_gpu_utilization_ratio{{{S}}}", "{{pod}}")], "percentunit", low=0, high=1),
    )


def bounds(board):
    pods = "namespace, pod, pod_uid"
    ran = f"(sum by ({pods}) (increase(warpmeter_pod_gpu_used_seconds_total{{{S}}}[{RANGE}])) > 0)"
    of = lambda name: Query(f'sum by ({pods}) (increase(warpmeter_pod_roofline_seconds_total{{{S}, class="{name}"}}[{RANGE}])) / {ran}')
    row(
        board, "What bounds the work",
        by_class(lines("Share of running time by roofline class", """Of the time in which the pods' work ran. bandwidth_bound: fewer bytes (fused kernels, narrower types). compute_bound: near what the GPU is for. latency_bound: more work at a time, fewer waits.
                       low_intensity: next to nothing is moved or computed (spinning collectives, tiny kernels). unknown: shared devices, or counters are missing. docs/roofline.md has the thresholds.""",
                       [Query(f"sum by (class) (rate(warpmeter_pod_roofline_seconds_total{{{S}}}[{RATE}])) / on () group_left () (sum(rate(warpmeter_pod_gpu_used_seconds_total{{{S}}}[{RATE}])) > 0)", "{{class}}")],
                       "percentunit", width=16, stacked=True, low=0, high=1)),
        by_class(bars("Running time in the range, by roofline class", "GPU seconds in which the pods' work ran, over the time range. The bars sum to engine active in the waterfall.",
                      [Query(total("warpmeter_pod_roofline_seconds_total", by=" by (class) "), "{{class}}", at_end=True)], "s", width=8, decimals=1)),
        lines("Low-intensity activity, by pod", """Share of SM-active time in which tensor pipes and memory did next to nothing: a hint of kernels that spin, as collectives do while they wait for a slower rank.
              Many pods of one job at once: find the slowest. No line: no SM activity, or no counters of it.""",
              [Query(f"sum by (pod) (rate(warpmeter_pod_low_intensity_active_seconds_total{{{S}}}[{RATE}])) / (sum by (pod) (rate(warpmeter_pod_sm_active_seconds_total{{{S}}}[{RATE}])) > 0)", "{{pod}}")],
              "percentunit", low=0, high=1),
        rows("Pods by roofline class", "Shares of the time in which each pod's work ran, over the dashboard's time range; the rest is unknown. What would help is in docs/roofline.md, and in warpmeter explain.",
             [(Query(f"sum by ({pods}) (increase(warpmeter_pod_gpu_used_seconds_total{{{S}}}[{RANGE}]))"), "ran", "s"),
              (of("bandwidth_bound"), "bandwidth bound", "percentunit"), (of("compute_bound"), "compute bound", "percentunit"),
              (of("latency_bound"), "latency bound", "percentunit"), (of("low_intensity"), "low intensity", "percentunit")],
             width=12, height=8, first=("namespace", "pod"), sort="ran", hide=("pod_uid",)),
    )


def cost(board):
    row(
        board, "Money and sharing",
        money(by_state(lines("Cost per hour by state", "What the pods cost, by what they did. Frozen at the price when it accrued.", [Query(f"sum by (state, currency) (rate(warpmeter_pod_cost_total{{{S}}}[{RATE}])) * 3600", "{{state}} {{currency}}")], "none", stacked=True, low=0))),
        money(by_state(bars("Cost in the range, by state", "Totals over the time range.", [Query(total("warpmeter_pod_cost_total", by=" by (state, currency) "), "{{state}} {{currency}}", at_end=True)], "none", decimals=2))),
        by_activity(lines("Borrowed", "Physical GPUs used beyond what the pods hold, on shared devices. It is not priced. Much of it: the pod needs more than it asked for, and its neighbours may be contended.",
                          [Query(f"sum(rate(warpmeter_pod_gpu_borrowed_seconds_total{{{S}}}[{RATE}]))", "borrowed")], GPUS, low=0)).override_by_name("borrowed", [fixed(BORROWED)]),
        rows("Pods", "Pods, what they hold and cost now; utilisation, and the share of held time that waited for data, over 30 minutes. What is missing is not known.",
             [(Query(f"max by (namespace, pod, pod_uid, node, workload, team, model) (pod:warpmeter_attributes:last15m{{{S}}})"), None, None),
              (Query(f"sum by (namespace, pod, pod_uid) (warpmeter_pod_allocated_gpus{{{S}}})"), "GPUs", "none"),
              (Query(f"sum by (namespace, pod, pod_uid) (pod:warpmeter_utilization:ratio_rate30m{{{S}}})"), "utilisation", "percentunit"),
              (Query(f"sum by (namespace, pod, pod_uid) (pod:warpmeter_starved:ratio_rate30m{{{S}}})"), "starved", "percentunit"),
              (Query(f"sum by (namespace, pod, pod_uid, currency) (rate(warpmeter_pod_cost_total{{{S}}}[{RATE}])) * 3600"), "cost per hour", MONEY),
              (Query(f"sum by (namespace, pod, pod_uid) (time() - warpmeter_pod_start_timestamp_seconds{{{S}}})"), "age", "s")],
             width=12, height=8, first=("namespace", "workload", "pod", "node", "team", "model"), sort="cost per hour", hide=("pod_uid",)),
    )


def memory(board):
    row(
        board, "Memory and energy",
        lines("Device memory", "Bytes in use by the pods, and what their devices have. On a shared device the capacity is for all of its pods. Far below: a smaller GPU or MIG profile may do.",
              [Query(f"sum by (pod) (warpmeter_pod_memory_used_bytes{{{S}}})", "{{pod}}"),
               Query(f'sum(warpmeter_gpu_memory_capacity_bytes{{cluster=~"$cluster"}} and on (cluster, gpu_uuid, mig) warpmeter_pod_memory_used_bytes{{{S}}})', "capacity")], "bytes", low=0)
        .override_by_name("capacity", [fixed("text"), setting("custom.lineStyle", {"fill": "dash", "dash": [10, 10]})]),
        lines("Power", "Watts of the boards by the pods' part of the use. It is apportioned: no board measures a pod.", [Query(f"sum by (pod) (rate(warpmeter_pod_energy_joules_total{{{S}}}[{RATE}]))", "{{pod}}")], "watt", width=8, stacked=True, low=0),
        number("Energy in the range", "Joules over the time range. 3.6 million are one kilowatt-hour.", [Query(total("warpmeter_pod_energy_joules_total"), "energy", at_end=True)], "joule", width=4, height=8, decimals=2),
    )


def host(board):
    beside = lambda title, text, *pairs, unit: lines(title, text, [Query(f"sum by (pod) ({name}{{{S}}})", f"{{{{pod}}}} {what}".strip()) for name, what in pairs], unit, width=8, low=0)
    row(
        board, "The host beside it (needs cAdvisor: docs/joins.md)",
        beside("CPU", "CPU cores in use, over 30 minutes. At the limit while the GPU is starved by cpu or cpu_wait: raise it.", ("pod:warpmeter_cpu_cores:rate30m", ""), unit="suffix:cores"),
        beside("CPU throttled", "Share of scheduling periods in which the pod was throttled. A starved GPU beside it costs more than the CPU that is saved.", ("pod:warpmeter_cpu_throttled:ratio_rate30m", ""), unit="percentunit"),
        beside("Disk and network", "Throughput over 30 minutes, as cAdvisor counts it: files that are mapped or on network storage may not be in disk.",
               ("pod:warpmeter_disk_read_bytes:rate30m", "disk read"), ("pod:warpmeter_disk_written_bytes:rate30m", "disk written"),
               ("pod:warpmeter_network_received_bytes:rate30m", "network received"), ("pod:warpmeter_network_sent_bytes:rate30m", "network sent"), unit="Bps"),
    )


def build():
    board = page("warpmeter-workload", "Warpmeter / Workload", "What pods do with the GPUs that they hold, why not more, and what that costs. Needs the recording rules of deploy/rules.", variables(), start="now-3h")
    for part in (overview, time, starvation, waterfall, bounds, cost, memory, host):
        part(board)
    return board
