"""What all GPUs do, what they cost, and who holds them."""

from parts import GPUS, MONEY, Query, STARVED, bars, by_activity, by_cause, by_class, by_state, limits, lines, link, money, number, page, row, rows, STATES

C = 'cluster=~"$cluster"'


def by_team(pods, more=""):
    """A figure of pods, by `cluster` and `pod_uid`, with their teams; pods of which none is known count under an empty name."""
    return f"sum by (team{more}) ({pods} * on (cluster, pod_uid) group_left (team) pod:warpmeter_attributes:last15m{{{C}}} or on (cluster, pod_uid) {pods})"


# Money that bought no work, in each minute of the range: a rule's value is a rate per hour.
WASTED = f"sum by (namespace, workload_kind, workload, currency) (sum_over_time(workload:warpmeter_unused_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60"
SPENT = f"sum by (namespace, workload_kind, workload, currency) (sum_over_time(workload:warpmeter_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60"
STARVED_MONEY = f"sum by (namespace, workload_kind, workload, currency) (sum_over_time(workload_cause:warpmeter_starved_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60"
STARVED_TIME = f"sum by (namespace, workload_kind, workload) (sum_over_time(workload_cause:warpmeter_starved_gpus:rate30m{{{C}}}[$__range:1m])) * 60"
STARVED_SHARE = f"""sum by (namespace, workload_kind, workload) (workload:warpmeter_allocated_gpus:rate30m{{{C}}} * workload:warpmeter_starved:ratio_rate30m{{{C}}})
  / sum by (namespace, workload_kind, workload) (workload:warpmeter_allocated_gpus:rate30m{{{C}}} and workload:warpmeter_starved:ratio_rate30m{{{C}}})"""
GPU_TIME = f"sum by (namespace, workload_kind, workload) (sum_over_time(workload:warpmeter_allocated_gpus:rate30m{{{C}}}[$__range:1m])) * 60"
IDLE_TIME = f"""sum by (namespace, workload_kind, workload) (
  sum_over_time((workload:warpmeter_allocated_gpus:rate30m{{{C}}} * (1 - workload:warpmeter_utilization:ratio_rate30m{{{C}}}))[$__range:1m])) * 60"""
USED_SHARE = f"""sum by (namespace, workload_kind, workload) (workload:warpmeter_allocated_gpus:rate30m{{{C}}} * workload:warpmeter_utilization:ratio_rate30m{{{C}}})
  / sum by (namespace, workload_kind, workload) (workload:warpmeter_allocated_gpus:rate30m{{{C}}} and workload:warpmeter_utilization:ratio_rate30m{{{C}}})"""


def overview(board):
    unknown = number(
        "Activity unknown, 30 minutes",
        """Share of GPU time of which it is not known whether work ran: counters were not to be had, or contradict each other. It is in no
        utilisation here. Above 10 % alerts on low use are silent: see the node and device health dashboard, sources and XID first.""",
        [Query(f"sum(device:warpmeter_activity_unknown_gpus:rate30m{{{C}}}) / (sum(device:warpmeter_total_gpus:rate30m{{{C}}}) > 0)", "unknown", at_end=True)],
        "percentunit", decimals=1)
    limits(unknown, "text", (0.10, STATES["idle"]))
    row(
        board, "Now",
        number("GPUs that can be read", "Physical GPUs that their node's daemon can read. Fewer than you pay for: see node and device health, and nodes without Warpmeter.",
               [Query(f"sum(warpmeter_gpu_up{{{C}}})", "GPUs", at_end=True)], GPUS, decimals=0),
        money(number("Cost per hour", "What all GPUs cost now, whether they work or not, at configured prices. No data: no price is configured.",
                     [Query(f"sum by (currency) (rate(warpmeter_gpu_cost_total{{{C}}}[$__rate_interval])) * 3600", "{{currency}}", at_end=True)], "none", decimals=2, empty="no price")),
        money(number("Of that, bought no work", "Per hour, over 30 minutes: cost of time that is known to have done no work, unallocated time included. Start with the ranking of waste below.",
                     [Query(f"sum by (currency) (cluster:warpmeter_unused_cost_per_hour:rate30m{{{C}}})", "{{currency}}", at_end=True)], "none", decimals=2, empty="no price")),
        number("Utilisation, 30 minutes", "Work done over all GPU time that is paid for and known, by SM-active where there is such a counter, else engine-active. Weighted by GPU time: not a mean of percentages.",
               [Query(f"sum(device:warpmeter_used_gpus:rate30m{{{C}}}) / (sum(device:warpmeter_known_gpus:rate30m{{{C}}}) > 0)", "utilisation", at_end=True)], "percentunit", decimals=1),
        number("Free now", "GPUs that nobody holds, as a scheduler could grant them; free MIG instances and replicas count as parts. Free for hours: scale down, or see what waits.",
               [Query(f"sum(node:warpmeter_free_gpus:rate5m{{{C}}})", "free", at_end=True)], GPUS, decimals=2),
        unknown,
    )


def time_and_money(board):
    row(
        board, "Where GPU time and money go",
        by_state(lines("GPU time by state", """Physical GPUs in each state; the stack is all GPUs. Active: work ran. Stalled: work waits for something. Idle: held and nothing to do.
                       Unknown: nobody can say. Unallocated: held by nobody. Unallocatable: slices that no MIG profile can use. Large orange: feed the GPUs; large blue: fewer nodes.""",
                       [Query(f"sum by (state) (rate(warpmeter_gpu_seconds_total{{{C}}}[$__rate_interval]))", "{{state}}")], GPUS, stacked=True, low=0)),
        money(by_state(lines("Cost per hour by state", "The same in money, frozen at the price when it accrued. GPUs without a price are not in it: see prices below.",
                             [Query(f"sum by (state, currency) (rate(warpmeter_gpu_cost_total{{{C}}}[$__rate_interval])) * 3600", "{{state}} {{currency}}")], "none", stacked=True, low=0))),
        by_state(bars("GPU time in the range, by state", "GPU seconds over the dashboard's time range. The bars sum to the time for which GPUs were watched.",
                      [Query(f"sum by (state) (increase(warpmeter_gpu_seconds_total{{{C}}}[$__range]))", "{{state}}", at_end=True)], "s", decimals=1)),
        money(by_state(bars("Money in the range, by state", "What each state cost over the dashboard's time range. All but active is what better feeding, packing or scaling could save at most.",
                            [Query(f"sum by (state, currency) (increase(warpmeter_gpu_cost_total{{{C}}}[$__range]))", "{{state}} {{currency}}", at_end=True)], "none", decimals=2))),
        by_cause(lines("Held time by cause", """Why pods' GPUs did not work, in physical GPUs. disk_read to lock are data starvation: storage, loaders, CPU requests. transfer, launch and sync are the program's own.
                       contended: neighbours on a shared GPU. no_process and no_work: nobody uses what is held. no_evidence: measured not to work, reason not known.""",
                       [Query(f"sum by (state, cause) (rate(warpmeter_pod_gpu_seconds_total{{{C}}}[$__rate_interval])) > 0", "{{state}} {{cause}}")], GPUS, width=24, height=9, stacked=True, low=0)),
    )


def who(board):
    row(
        board, "Whose",
        lines("GPUs held, by team", "Physical GPUs now. Teams come from pod labels, or from kube-state-metrics (docs/joins.md); pods without one are under an empty name.",
              [Query(by_team(f"sum by (cluster, pod_uid) (rate(warpmeter_pod_gpu_seconds_total{{{C}}}[$__rate_interval]))"), "team {{team}}")], GPUS, stacked=True, low=0),
        money(lines("Cost per hour, by team", "What teams' GPUs cost now. For bills use the totals: namespaces below, or the report command.",
                    [Query(by_team(f"sum by (cluster, pod_uid, currency) (rate(warpmeter_pod_cost_total{{{C}}}[$__rate_interval])) * 3600", ", currency"), "team {{team}} {{currency}}")], "none", stacked=True, low=0)),
        rows("Teams in the range", "Cost, and the part of it that is known to have bought no work, over the dashboard's time range; utilisation is of the last 30 minutes.",
             [(Query(f"sum by (team, currency) (sum_over_time(team:warpmeter_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60"), "cost", MONEY),
              (Query(f"sum by (team, currency) (sum_over_time(team:warpmeter_unused_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60"), "bought no work", MONEY),
              (Query(f"sum by (team) (sum_over_time(team:warpmeter_allocated_gpus:rate30m{{{C}}}[$__range:1m])) * 60"), "GPU time", "s"),
              (Query(f"sum by (team) (team:warpmeter_allocated_gpus:rate30m{{{C}}} * team:warpmeter_utilization:ratio_rate30m{{{C}}}) / sum by (team) (team:warpmeter_allocated_gpus:rate30m{{{C}}} and team:warpmeter_utilization:ratio_rate30m{{{C}}})"), "utilisation", "percentunit")],
             width=12, first=("team", "currency"), sort="cost"),
        rows("Namespaces in the range", "Exact totals: counters of the namespace, with pods too short to be seen by two scrapes. An empty name is pods whose name is not known yet. GPU time needs no price.",
             [(Query(f"sum by (namespace, currency) (increase(warpmeter_namespace_cost_total{{{C}}}[$__range]))"), "cost", MONEY),
              (Query(f'sum by (namespace, currency) (increase(warpmeter_namespace_cost_total{{{C}, state!="active"}}[$__range]))'), "not active", MONEY),
              (Query(f"sum by (namespace) (increase(warpmeter_namespace_gpu_seconds_total{{{C}}}[$__range]))"), "GPU time", "s"),
              (Query(f'sum by (namespace) (increase(warpmeter_namespace_gpu_seconds_total{{{C}, state="active"}}[$__range])) / (sum by (namespace) (increase(warpmeter_namespace_gpu_seconds_total{{{C}}}[$__range])) > 0)'), "active", "percentunit")],
             width=12, first=("namespace", "currency"), sort="GPU time"),
        lines("GPUs held, by namespace", "Physical GPUs now. Compare with quotas: claimed and used shares are in docs/joins.md.",
              [Query(f"sum by (namespace) (rate(warpmeter_namespace_gpu_seconds_total{{{C}}}[$__rate_interval])) > 0", "namespace {{namespace}}")], GPUS, stacked=True, low=0),
        money(lines("Cost per hour, by namespace", "What namespaces' GPUs cost now. Namespaces without a price are not in it.",
                    [Query(f"sum by (namespace, currency) (rate(warpmeter_namespace_cost_total{{{C}}}[$__rate_interval])) * 3600 > 0", "namespace {{namespace}} {{currency}}")], "none", stacked=True, low=0)),
    )


OPEN_WORKLOAD = "/d/warpmeter-workload?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&var-namespace=${__data.fields.namespace}&var-workload=${__value.raw}"


def starvation(board):
    ranking = rows(
        "Starved of data, ranked", """Workloads by what their GPUs cost while they waited for data, over the dashboard's time range; the share is of the last 30 minutes. Click a workload to see by what.
        Its page of WarpmeterDataStarved says what helps against each cause. Without a price there is GPU time only; without probes on a node its pods are not in it.""",
        [(Query(STARVED_MONEY), "lost", MONEY), (Query(STARVED_TIME), "GPU time lost", "s"), (Query(STARVED_SHARE), "starved, 30 minutes", "percentunit")],
        first=("workload", "workload_kind", "namespace", "currency"), sort="GPU time lost", most=25)
    row(
        board, "Starved of data",
        by_cause(lines("GPUs that wait for data, by cause", """Physical GPUs whose pods wait for disk, network, CPU, memory or one another. disk and network: prefetch, local disks, a cache. cpu: more loader workers, decoding on the GPU.
                       cpu_wait: CPU limits and requests. Where probes are off there are no causes: see node and device health.""",
                       [Query(f"sum by (cause) (rate(warpmeter_pod_gpu_seconds_total{{{C}, {STARVED}}}[$__rate_interval])) > 0", "{{cause}}")], GPUS, stacked=True, low=0)),
        by_cause(bars("GPU time lost to waiting for data, by cause", "GPU time over the dashboard's time range. Each cause has its section on the page of WarpmeterDataStarved.",
                      [Query(f"sort_desc(sum by (cause) (increase(warpmeter_pod_gpu_seconds_total{{{C}, {STARVED}}}[$__range])) > 0)", "{{cause}}", at_end=True)], "s", width=6, decimals=1)),
        money(by_cause(bars("Money lost to waiting for data, by cause", "What that time cost, over the dashboard's time range. Faster storage or more CPU is worth up to this.",
                            [Query(f"sum by (cause, currency) (sum_over_time(pod_cause:warpmeter_starved_cost_per_hour:rate30m{{{C}}}[$__range:1m])) / 60", "{{cause}} {{currency}}", at_end=True)], "none", width=6, decimals=2))),
        link(ranking, "workload", "What this workload does", OPEN_WORKLOAD),
    )


def waste(board):
    ranking = rows(
        "Waste, ranked by money", "Workloads by what they spent on GPU time that did no work, over the dashboard's time range. A pod of which no workload is known counts under its namespace. Click a workload to see why.",
        [(Query(WASTED), "bought no work", MONEY), (Query(SPENT), "cost", MONEY), (Query(GPU_TIME), "GPU time", "s"), (Query(USED_SHARE), "utilisation, 30 minutes", "percentunit")],
        first=("workload", "workload_kind", "namespace", "currency"), sort="bought no work", most=25)
    by_time = rows(
        "Waste, ranked by GPU time", "The same without prices: GPU seconds that were held and did no work. Time of unknown activity is left out in proportion.",
        [(Query(IDLE_TIME), "did no work", "s"), (Query(GPU_TIME), "GPU time", "s"), (Query(USED_SHARE), "utilisation, 30 minutes", "percentunit")],
        width=12, first=("workload", "workload_kind", "namespace"), sort="did no work", most=25)
    under = rows(
        "Pods under 30 %", "Pods that did work in less than 30 % of what they held, for 30 minutes, with every reason not to say so taken out: the alert WarpmeterPodUnder30Percent. Its page says what to do.",
        [(Query(f"sum by (namespace, pod) (pod:warpmeter_under30:ratio_rate30m{{{C}}})"), "utilisation", "percentunit"),
         (Query(f"sum by (namespace, pod) (pod:warpmeter_starved:ratio_rate30m{{{C}}} and pod:warpmeter_under30:ratio_rate30m{{{C}}})"), "starved of data", "percentunit")],
        width=12, first=("namespace", "pod"), sort="utilisation")
    row(board, "Waste", link(ranking, "workload", "What this workload does", OPEN_WORKLOAD), link(by_time, "workload", "What this workload does", OPEN_WORKLOAD), under)


def utilisation(board):
    row(
        board, "Utilisation and unknown",
        by_activity(lines("Utilisation of what is held", """Shares of time that pods hold, where it is known. Engine active: a kernel ran. SM active: share of SMs with work; far below engine: kernels too small or too few.
                          SM occupied: warps resident of the most there can be; low occupancy alone is no fault.""",
                          [Query(f'sum(rate(warpmeter_pod_gpu_seconds_total{{{C}, state="active"}}[$__rate_interval])) / (sum(rate(warpmeter_pod_gpu_seconds_total{{{C}, cause!~"source_lost|conflict"}}[$__rate_interval])) > 0)', "engine active"),
                           Query(f"sum(rate(warpmeter_pod_sm_active_seconds_total{{{C}}}[$__rate_interval])) / (sum(rate(warpmeter_pod_profiled_seconds_total{{{C}}}[$__rate_interval]) and on (cluster, pod_uid, container, gpu_uuid, mig) warpmeter_pod_sm_active_seconds_total{{{C}}}) > 0)", "SM active"),
                           Query(f"sum(rate(warpmeter_pod_sm_occupied_seconds_total{{{C}}}[$__rate_interval])) / (sum(rate(warpmeter_pod_profiled_seconds_total{{{C}}}[$__rate_interval]) and on (cluster, pod_uid, container, gpu_uuid, mig) warpmeter_pod_sm_occupied_seconds_total{{{C}}}) > 0)", "SM occupied")],
                          "percentunit", low=0, high=1)),
        lines("Unknown share of held time", """Part of pods' time whose state is unknown, by cause. no_evidence: measured not to work, the reason not known (probes are off, or saw none). source_lost: no counters.
              conflict: counters contradict each other. The last two are faults of telemetry: see node and device health.""",
              [Query(f'sum by (cause) (rate(warpmeter_pod_gpu_seconds_total{{{C}, state="unknown"}}[$__rate_interval])) / on () group_left () (sum(rate(warpmeter_pod_gpu_seconds_total{{{C}}}[$__rate_interval])) > 0)', "{{cause}}")],
              "percentunit", stacked=True, low=0, high=1),
        lines("How amounts are known", "GPU time of the ledger of use by its evidence. Measured: exact. Apportioned: divided by what each process was seen to use. Inferred: by what each was seen to ask for. Assumed: by a rule that you configured.",
              [Query(f'sum by (evidence) (rate(warpmeter_evidence_seconds_total{{{C}, ledger="use"}}[$__rate_interval])) / on () group_left () (sum(rate(warpmeter_evidence_seconds_total{{{C}, ledger="use"}}[$__rate_interval])) > 0)', "{{evidence}}")],
              "percentunit", stacked=True, low=0, high=1),
        lines("Unattributed work", "Physical GPUs that work kept busy of which nobody knows whose it is: processes outside pods, or readings that were missed. Steady: find out what runs there, by node.",
              [Query(f"sum by (node) (rate(warpmeter_gpu_unattributed_seconds_total{{{C}}}[$__rate_interval]))", "{{node}}")], GPUS, low=0),
        by_class(lines("Work by roofline class", """Physical GPUs that work kept busy, by what bounded it. bandwidth_bound: memory; compute_bound: the pipes; latency_bound: neither; low_intensity: next to nothing is moved or computed.
                       unknown: shared devices, or counters are missing. docs/roofline.md says what helps.""",
                       [Query(f"sum by (class) (rate(warpmeter_pod_roofline_seconds_total{{{C}}}[$__rate_interval]))", "{{class}}")], GPUS, stacked=True, low=0)),
        lines("Low-intensity activity, by namespace", """Physical GPUs whose SMs were busy while tensor pipes and memory did next to nothing: a hint of kernels that spin, as collectives do while they wait for a slower rank.
              It counts as active and costs as much. See the namespace's pods on the workload dashboard.""",
              [Query(f"sum by (namespace) (rate(warpmeter_pod_low_intensity_active_seconds_total{{{C}}}[$__rate_interval]))", "namespace {{namespace}}")], GPUS, stacked=True, low=0),
    )


def free(board):
    row(
        board, "Unallocated",
        lines("Free GPUs, by node", "Physical GPUs that nobody holds. A node that is free for 6 hours fires WarpmeterUnallocated.",
              [Query(f"sum by (node) (node:warpmeter_free_gpus:rate5m{{{C}}}) > 0.001", "{{node}}")], GPUS, stacked=True, low=0),
        lines("Free, against what waits", """Whole GPUs that are free, GPUs that pending pods ask for, and the part of these for which there is room but on no single node (fragmentation). The same for MIG:
              GPUs asked for in profiles of which no instance is free, though slices are. Needs kube-state-metrics. Fragmented: pack, or change the MIG layout.""",
              [Query(f"sum(node:warpmeter_free_whole_gpus:rate5m{{{C}}})", "free whole GPUs"),
               Query(f"sum(cluster:warpmeter_pending_gpus:sum{{{C}}})", "pending"),
               Query(f"sum(cluster:warpmeter_fragmented_gpus:sum{{{C}}})", "fragmented"),
               Query(f"sum(cluster:warpmeter_fragmented_mig_gpus:sum{{{C}}})", "fragmented, MIG")], GPUS, low=0, steps=True),
    )


def prices(board):
    row(
        board, "Prices",
        number("GPUs without a price", "GPUs of which the price is not known: their time is counted and costs nothing here. Add the model to [price].",
               [Query(f"count(warpmeter_gpu_up{{{C}}} unless on (cluster, gpu_uuid) warpmeter_gpu_price_per_hour{{{C}}}) or vector(0)", "GPUs", at_end=True)], "none", decimals=0),
        number("Price age", "Age of the oldest price in use. Above 90 days: check it against the bill.",
               [Query(f"max(time() - warpmeter_price_table_timestamp_seconds{{{C}}})", "age", at_end=True)], "s", empty="no date"),
        rows("Prices in force", "Price of the whole GPU per hour, by model, and on how many GPUs. Check it against the bill.",
             [(Query(f'count by (model, currency, price) (count_values by (cluster, gpu_uuid, currency) ("price", warpmeter_gpu_price_per_hour{{{C}}}) * on (cluster, gpu_uuid) group_left (model) max by (cluster, gpu_uuid, model) (warpmeter_gpu_info{{{C}, mig=""}}))'), "GPUs", "none")],
             width=10, height=6, first=("model", "price", "currency")),
        rows("Where prices come from", "The source of prices on each node. Different sources on nodes of one kind: their configuration differs.",
             [(Query(f"count by (source) (warpmeter_price_info{{{C}}})"), "nodes", "none")], width=6, height=6, first=("source",)),
    )


def build():
    board = page("warpmeter-fleet", "Warpmeter / Fleet", "GPU time and money of all nodes: what works, what waits, who holds it. Needs the recording rules of deploy/rules.", [])
    for part in (overview, time_and_money, who, waste, starvation, utilisation, free, prices):
        part(board)
    return board
