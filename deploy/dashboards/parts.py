"""What the dashboards are made of: colours, units, panels, variables. The same name has the same colour everywhere."""

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# Near those of Okabe and Ito: told apart with every kind of colour blindness (test.py measures it).
STATES = {
    "active": "#008A64",
    "stalled": "#F0B400",
    "idle": "#D55E00",
    "unknown": "#B3B3B3",
    "unallocated": "#7CC7F0",
    "unallocatable": "#24478F",
}
BORROWED = "#CC79A7"
# The causes that are data starvation, as a selector.
STARVED = 'state="stalled", cause=~"disk_read|disk_write|network|cpu|cpu_wait|memory|lock"'
# Shades of the state's colour. Nobody tells so many apart by colour alone: legends and tooltips have the names.
CAUSES = {
    "none": STATES["active"],
    "disk_read": "#FFD966",
    "disk_write": "#F6C445",
    "network": "#F0B400",
    "cpu": "#D9A300",
    "cpu_wait": "#C29100",
    "memory": "#AB8000",
    "lock": "#946E00",
    "transfer": "#E6D8A8",
    "launch": "#CFC08C",
    "sync": "#B8A870",
    "contended": "#A19055",
    "no_process": "#F08A4B",
    "initializing": "#E8722A",
    "model_load": "#D55E00",
    "no_work": "#A84A00",
    "no_evidence": "#D0D0D0",
    "source_lost": "#B3B3B3",
    "conflict": "#858585",
}
# Down the waterfall the same green gets darker; the part that is lost keeps the colour of its state.
ACTIVITY = {
    "allocated": "#CCCCCC",
    "active": STATES["active"],
    "engine active": "#33B892",
    "SM active": "#0072B2",
    "SM occupied": "#004A73",
    "tensor": BORROWED,
    "DRAM": "#8A6FB0",
    "low intensity": STATES["idle"],
    "borrowed": BORROWED,
}
# Roofline classes: as far apart as states, of which two have the colours.
CLASSES = {
    "bandwidth_bound": "#5B3A8E",
    "compute_bound": "#00796B",
    "latency_bound": "#A5D8FF",
    "low_intensity": STATES["idle"],
    "unknown": STATES["unknown"],
}
# Codes that Grafana has a sign for. Money of another currency shows as a number, with its code in the name.
CURRENCIES = "USD EUR GBP JPY CNY INR KRW BRL CHF SEK NOK DKK PLN CZK ZAR TRY IDR MYR PHP VND ILS UAH".split()
UNSIGNED = {"CNY": "currency:¥"}

GPUS = "suffix:GPUs"
# In tables the currency has a column of its own.
MONEY = "money"
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")


def setting(name, value):
    return model.DynamicConfigValue(id_val=name, value=value)


def fixed(colour):
    return setting("color", {"mode": "fixed", "fixedColor": colour})


class Query:
    """A query and what its series are called. `at_end`: one value at the end of the range, not a line."""

    def __init__(self, expr, name="", at_end=False):
        self.expr, self.name, self.at_end = " ".join(expr.split()), name, at_end


def targets(panel, queries, form):
    for index, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.name or "__auto").ref_id(chr(ord("A") + index)).datasource(SOURCE)
        if form == "table":
            target = target.format(PromQueryFormat.TABLE)
        panel.with_target(target.instant() if query.at_end or form == "table" else target.range())
    return panel


def dress(panel, title, text, queries, unit, width, height, form="lines", decimals=None):
    panel.title(title).description(" ".join(text.split())).datasource(SOURCE).span(width).height(height)
    if unit is not None:
        panel.unit(unit)
    if decimals is not None:
        panel.decimals(decimals)
    return targets(panel, queries, form)


def by_state(panel):
    """Colours for series that begin with a state."""
    for name, colour in STATES.items():
        panel.override_by_regexp(f"/^{name}( |$)/", [fixed(colour)])
    return panel


def by_cause(panel):
    """Colours for series that end in a cause, or in a cause and a currency."""
    for name, colour in CAUSES.items():
        panel.override_by_regexp(f"/(^| ){name}( [A-Z]{{3}})?$/", [fixed(colour)] + ([setting("displayName", "active")] if name == "none" else []))
    return panel


def by_activity(panel):
    for name, colour in ACTIVITY.items():
        panel.override_by_regexp(f"/^{name}( |$)/", [fixed(colour)])
    return panel


def by_class(panel):
    """Colours for series of roofline classes."""
    for name, colour in CLASSES.items():
        panel.override_by_regexp(f"/^{name}( |$)/", [fixed(colour)])
    return panel


def money(panel):
    """The unit of series that end in the code of a currency."""
    for code in CURRENCIES:
        panel.override_by_regexp(f"/(^| ){code}$/", [setting("unit", UNSIGNED.get(code, f"currency{code}"))])
    return panel


def lines(title, text, queries, unit, width=12, height=8, stacked=False, low=None, high=None, steps=False):
    """Series over time; stacked ones are parts of a whole."""
    panel = timeseries.Panel().line_width(0 if stacked else 1).fill_opacity(80 if stacked else 0)
    panel.show_points(common_model.VisibilityMode.NEVER).tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
    panel.legend(common.VizLegendOptions().show_legend(True).display_mode(common_model.LegendDisplayMode.TABLE).placement(common_model.LegendPlacement.RIGHT).calcs(["lastNotNull", "mean"]))
    # A line per gap: what is not known is not drawn.
    panel.span_nulls(False)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if steps:
        panel.line_interpolation(common_model.LineInterpolation.STEP_AFTER)
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    return dress(panel, title, text, queries, unit, width, height)


def limits(panel, first, *steps):
    panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps([model.Threshold(value=None, color=first), *(model.Threshold(value=value, color=colour) for value, colour in steps)]))
    return panel


def number(title, text, queries, unit, width=4, height=4, decimals=None, empty="no data"):
    """One large value for each series."""
    panel = stat.Panel().graph_mode(common_model.BigValueGraphMode.NONE).color_mode(common_model.BigValueColorMode.VALUE)
    panel.text_mode(common_model.BigValueTextMode.AUTO).no_value(empty).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    limits(panel, "text")
    return dress(panel, title, text, queries, unit, width, height, decimals=decimals)


def bars(title, text, queries, unit, width=12, height=8, decimals=None):
    """Totals side by side, on one scale from 0."""
    panel = bargauge.Panel().display_mode(common_model.BarGaugeDisplayMode.BASIC).orientation(common_model.VizOrientation.HORIZONTAL)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"])).min(0).no_value("no data")
    return dress(panel, title, text, queries, unit, width, height, decimals=decimals)


def rows(title, text, columns, width=24, height=9, first=(), sort=None, most=None, hide=()):
    """A table; `columns` are a query, its heading and its unit (None: only for its labels). Rows meet by the labels that queries share."""
    panel = table.Panel().filterable(True)
    dress(panel, title, text, [query for query, *_ in columns], None, width, height, form="table")
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    names = [f"Value #{chr(ord('A') + index)}" if len(columns) > 1 else "Value" for index in range(len(columns))]
    order = {name: index for index, name in enumerate([*first, *names])}
    hidden = {"Time": True, "__name__": True, **{name: True for name in hide}}
    renamed = {}
    for name, (_query, heading, unit) in zip(names, columns):
        if heading is None:
            hidden[name] = True
            continue
        renamed[name] = heading
        # A default unit would be one for labels as well, and show XID 79 as 79.00.
        shown = [setting("unit", "none"), setting("decimals", 2)] if unit == MONEY else [setting("unit", unit)]
        panel.override_by_name(heading, shown + ([setting("min", 0), setting("max", 1)] if unit == "percentunit" else []))
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options={"excludeByName": hidden, "indexByName": order, "renameByName": renamed}))
    if sort:
        panel.with_transformation(model.DataTransformerConfig(id_val="sortBy", options={"fields": {}, "sort": [{"field": sort, "desc": True}]}))
    if most:
        panel.with_transformation(model.DataTransformerConfig(id_val="limit", options={"limitField": most}))
    return panel


def link(panel, field, title, url):
    panel.override_by_name(field, [setting("links", [{"title": title, "url": url, "targetBlank": False}])])
    return panel


def choice(name, label, query, text, everything=".*"):
    """A variable. `everything=None` makes "All" the list of what there is, which other variables then narrow."""
    variable = dashboard.QueryVariable(name).label(label).description(text).query({"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 1}).datasource(SOURCE)
    variable.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC).multi(True).include_all(True)
    variable.current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return variable.all_value(everything) if everything else variable


def page(uid, title, text, variables, refresh="1m", start="now-6h"):
    """A dashboard without panels yet. `cluster` is a choice of each; without such a label, "All" finds everything."""
    board = dashboard.Dashboard(title).uid(uid).description(text).tags(["warpmeter", "gpu"]).readonly().timezone("browser")
    board.tooltip(model.DashboardCursorSync.CROSSHAIR).time(start, "now").refresh(refresh)
    board.with_variable(dashboard.DatasourceVariable("datasource").label("data source").type("prometheus"))
    board.with_variable(choice("cluster", "cluster", "label_values(warpmeter_build_info, cluster)", "An external label or a relabelled one; with one cluster it may be absent."))
    for variable in variables:
        board.with_variable(variable)
    board.link(dashboard.DashboardLink("Warpmeter").type(model.DashboardLinkType.DASHBOARDS).tags(["warpmeter"]).icon("external link").include_vars(True).keep_time(True).as_dropdown(False).target_blank(False).tooltip("").url(""))
    alerts = dashboard.AnnotationQuery().name("alerts").datasource(SOURCE).enable(False).icon_color(STATES["idle"])
    board.annotation(alerts.expr('ALERTS{alertname=~"Warpmeter.+", alertstate="firing", cluster=~"$cluster"}'))
    return board


def row(board, title, *panels):
    board.with_row(dashboard.Row(title))
    for panel in panels:
        board.with_panel(panel)
