// What Grafana makes of the answers: its own library applies each panel's transformations, overrides and units.
//
//     node panels.cjs MODULES ANSWERS [--print]
//
// Grafana itself is not needed. What draws (its panels) is not in the library: this says what would be drawn.
const path = require("path"), fs = require("fs");
const [modules, answersFile, flag] = process.argv.slice(2);
const load = require("module").createRequire(path.resolve(modules, "package.json"));
const { JSDOM } = load("jsdom");
const { window } = new JSDOM("");
Object.assign(global, { window, document: window.document, HTMLElement: window.HTMLElement, Node: window.Node });
Object.defineProperty(global, "navigator", { value: window.navigator, configurable: true });
const grafana = load("@grafana/data"), { firstValueFrom } = load("rxjs");

const once = [...new Map(Object.values(grafana.standardTransformers).map((item) => [item.id, item])).values()];
grafana.standardTransformersRegistry.setInit(() => once.map((item) => ({ id: item.id, name: item.name, transformation: item })));
const kept = grafana.identityOverrideProcessor;
const property = (id, process, custom) => ({ id: custom ? `custom.${id}` : id, path: id, name: id, process, isCustom: custom, shouldApply: () => true });
const plain = [["unit", grafana.unitOverrideProcessor], ["min", grafana.numberOverrideProcessor], ["max", grafana.numberOverrideProcessor],
  ["decimals", grafana.numberOverrideProcessor], ["displayName", grafana.displayNameOverrideProcessor], ["noValue", kept],
  ["color", kept], ["thresholds", grafana.thresholdsOverrideProcessor], ["links", grafana.dataLinksOverrideProcessor]];
const custom = ["fillOpacity", "lineWidth", "lineStyle", "stacking"];
const properties = [...plain.map(([id, process]) => property(id, process)), ...custom.map((id) => property(id, kept, true))];
grafana.standardFieldConfigEditorRegistry.setInit(() => properties.filter((item) => !item.isCustom));
const registry = new grafana.Registry(() => properties);
const theme = grafana.createTheme();

let faults = 0;
const complain = (where, what) => { faults++; console.log(`FAILED ${where}: ${what}`); };
const ofLegend = (format, labels) => (format === "__auto" ? "" : format.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? "").trim());

// Frames as the Prometheus data source makes them.
function frames(panel, answers) {
  return panel.targets.flatMap((target) => {
    const series = answers.find((item) => item.letter === target.refId)?.series ?? [];
    const last = (item) => Number((item.values?.at(-1) ?? item.value)[1]);
    if (target.format === "table") {
      const labels = [...new Set(series.flatMap((item) => Object.keys(item.metric)))].sort();
      const name = panel.targets.length > 1 ? `Value #${target.refId}` : "Value";
      return [grafana.toDataFrame({ refId: target.refId, fields: [
        { name: "Time", type: "time", values: series.map(() => 0) },
        ...labels.map((label) => ({ name: label, type: "string", values: series.map((item) => item.metric[label]) })),
        { name, type: "number", values: series.map(last) }] })];
    }
    return series.map((item) => {
      const values = item.values ?? [item.value];
      return grafana.toDataFrame({ refId: target.refId, fields: [
        { name: "Time", type: "time", values: values.map(([at]) => at * 1000) },
        { name: "Value", type: "number", labels: item.metric, config: { displayNameFromDS: ofLegend(target.legendFormat, item.metric) }, values: values.map(([, value]) => Number(value)) }] });
    });
  });
}

const shown = (field, value) => (value === undefined || value === null ? "" : grafana.formattedValueToString(field.display(value)));

function checkTable(where, panel, data, print) {
  if (data.length !== 1) return complain(where, `${data.length} tables instead of one`);
  const [frame] = data, renamed = Object.values(panel.transformations.find((step) => step.id === "organize").options.renameByName);
  const labels = frame.fields.filter((field) => !renamed.includes(grafana.getFieldDisplayName(field, frame)));
  const rows = [...Array(frame.length).keys()].map((row) => labels.filter((field) => field.name !== "currency").map((field) => field.values[row] ?? "").join("|"));
  if (panel.targets.length > 1 && new Set(rows).size < rows.length) complain(where, `rows did not meet: ${rows.join(", ")}`);
  for (const field of labels) for (const value of field.values) if (value && shown(field, value) !== value) complain(where, `label ${value} is shown as ${shown(field, value)}`);
  if (print) {
    console.log("  " + frame.fields.map((field) => grafana.getFieldDisplayName(field, frame)).join(" | "));
    for (const row of rows.keys()) console.log("  " + frame.fields.map((field) => shown(field, field.values[row])).join(" | "));
  }
}

function checkSeries(where, panel, data, print) {
  const names = data.map((frame) => grafana.getFieldDisplayName(frame.fields[1], frame, data));
  if (new Set(names).size < names.length) complain(where, `two series of one name: ${names.join(", ")}`);
  data.forEach((frame, index) => {
    const { config, values } = frame.fields[1], text = shown(frame.fields[1], values.at(-1));
    if (names[index] === "") complain(where, "a series without a name");
    if (/^(active|stalled|idle|unknown|unallocated|unallocatable)( |$)/.test(names[index]) && panel.title.match(/state|cause/i) && config.color?.mode !== "fixed") complain(where, `${names[index]} has no colour of its own`);
    if (/ ?USD$/.test(names[index]) && !/^-?\$/.test(text)) complain(where, `${names[index]} is shown as ${text}`);
    if (print) console.log(`  ${names[index]}: ${text} ${config.color?.fixedColor ?? ""}`);
  });
}

async function main() {
  const answers = JSON.parse(fs.readFileSync(answersFile));
  const units = new Set(grafana.getValueFormats().flatMap((group) => group.submenu.map((item) => item.value)));
  let panels = 0;
  for (const board of ["fleet", "workload", "health"]) {
    const page = JSON.parse(fs.readFileSync(path.join(__dirname, "..", `${board}.json`)));
    for (const panel of page.panels.filter((item) => item.type !== "row")) {
      panels++;
      const set = panel.fieldConfig.overrides.flatMap((item) => item.properties.filter(({ id }) => id === "unit").map(({ value }) => value));
      for (const unit of [panel.fieldConfig.defaults.unit ?? "none", ...set])
        if (!units.has(unit) && !/^(suffix|currency):/.test(unit)) complain(`${board}: ${panel.title}`, `Grafana has no unit ${unit}`);
      for (const source of ["demo", "golden"]) {
        const where = `${board}: ${panel.title}, ${source}`;
        const own = answers[source].filter((item) => item.panel === `${board}: ${panel.title}`);
        const made = await firstValueFrom(grafana.transformDataFrame(panel.transformations ?? [], frames(panel, own)));
        const data = grafana.applyFieldOverrides({ data: made, fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry, replaceVariables: (text) => text, theme });
        if (flag) console.log(where);
        (panel.type === "table" ? checkTable : checkSeries)(where, panel, data, flag);
      }
    }
  }
  console.log(`${panels} panels as Grafana's library makes them, ${faults} failed`);
  process.exit(faults ? 1 : 0);
}

main();
