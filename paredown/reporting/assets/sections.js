// The sections of the page, each drawn from the rule and the setting that are chosen.

const $ = (id) => document.getElementById(id);
const AXES = {
  flops: { label: "MFLOPs per " + data.unit, of: (point) => point.flops / 1e6 },
  milliseconds: { label: "milliseconds per row, alone", of: (point) => point.milliseconds },
  layers: { label: "layers per " + data.unit, of: (point) => point.layers },
};

function drawFigures(point) {
  const lost = 100 * (point.score - data.full.score);
  const figures = {
    score: [`${data.metric} (%)`, percent(point.score), `${percent(point.low, 1)} to ${percent(point.high, 1)}`, point.score],
    change: ["against full depth", (lost >= 0 ? "+" : "−") + Math.abs(lost).toFixed(2), "points", lost],
    layers: ["layers", point.layers.toFixed(2), `of ${data.depth}`, point.layers],
    flops: ["MFLOPs", (point.flops / 1e6).toLocaleString("en", { maximumFractionDigits: 1 }), "", point.flops],
    speedup: ["fewer FLOPs", `${point.flops_speedup.toFixed(2)}×`, "than the stock model", point.flops_speedup],
  };
  if (data.times) figures.milliseconds = ["time of a row", `${point.milliseconds.toFixed(2)} ms`, `stock ${data.times.stock.toFixed(2)}`, point.milliseconds];
  $("figures").replaceChildren(...Object.entries(figures).map(([name, [label, value, more, exact]]) =>
    element("div", {}, element("dt", {}, label), element("dd", { id: `figure-${name}`, "data-value": exact }, value, " ", element("small", {}, more)))));
}

function drawCost({ rule, setting, axis, bands }) {
  const cost = AXES[axis].of, selected = rules[rule], point = selected?.points[setting];
  const shown = rules.flatMap((one) => one.points), all = [...shown, data.full];
  const costs = [...shown.map(cost), ...(axis === "milliseconds" ? data.times.milliseconds : [cost(data.full)])];
  const highest = Math.max(...all.map((one) => one.high)), lowest = Math.min(...all.map((one) => one.low));
  const room = (highest - lowest) * 0.06 || 0.01;
  const chart = new Chart($("cost"), {
    title: `${data.metric} against ${AXES[axis].label} for ${plural(rules.length, "exit rule")}; the selected one is ${selected?.name}. The table below has its figures.`,
    x: { range: [0, Math.max(...costs) * 1.04], label: AXES[axis].label },
    y: { range: [100 * Math.max(Math.min(lowest - room, highest - 0.02), -1), 100 * Math.min(highest + room, 1.005)], label: `${data.metric} (%)` },
  });
  const along = (one, key) => one.points.map((at) => [cost(at), 100 * at[key]]);
  const { left, right } = chart.box, level = chart.y(100 * data.full.score);
  chart.add("line", { class: "level", x1: left, x2: right, y1: level, y2: level });
  rules.forEach((one, at) => { if (bands || at === rule) chart.band(along(one, "low"), along(one, "high"), at === rule ? "on" : ""); });
  rules.forEach((one, at) => { if (at !== rule) chart.line(along(one, "score"), ""); });
  if (selected) chart.line(along(selected, "score"), "on");
  const stock = axis === "milliseconds" ? data.times.milliseconds.at(-1) : cost(data.full);
  chart.add("circle", { class: "full", cx: chart.x(stock), cy: level, r: 5 }, `full depth: ${percent(data.full.score)} %`);
  chart.text(chart.x(stock), level - 10, "full depth", "end", "strong");
  if (point) chart.add("circle", { class: "here", cx: chart.x(cost(point)), cy: chart.y(100 * point.score), r: 11 }, `${point.rule}: ${percent(point.score)} %`);
  drawChosen(chart, axis);
  chart.root.addEventListener("click", (event) => pickNearest(chart, cost, event));
}

function drawChosen(chart, axis) {
  if (!data.plan.exit || !rules.length) return;
  const point = rules[data.plan.rule].points[data.plan.setting];
  const x = chart.x(AXES[axis].of(point)), y = chart.y(100 * point.score);
  chart.add("path", { class: "chosen", d: `M${x},${y - 7}L${x + 7},${y}L${x},${y + 7}L${x - 7},${y}Z` }, `the plan, ${point.rule}: ${percent(point.score)} %`);
  chart.text(x + 10, y + 24, data.certificate ? "the plan, certified" : "the plan", "start", "chosen");
}

function pickNearest(chart, cost, event) {
  const box = chart.root.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let best = [Infinity];
  rules.forEach((one, rule) => one.points.forEach((point, setting) => {
    const far = Math.hypot(chart.x(cost(point)) - x, chart.y(100 * point.score) - y);
    if (far < best[0]) best = [far, rule, setting];
  }));
  if (best[0] < 40) choose({ rule: best[1], setting: best[2] });
}

function drawTable(rule, setting) {
  const names = { setting: (point) => point.rule, "score (%)": (point) => percent(point.score), "95 %": (point) => `${percent(point.low, 1)} to ${percent(point.high, 1)}`,
    layers: (point) => point.layers.toFixed(2), MFLOPs: (point) => (point.flops / 1e6).toFixed(1), "fewer FLOPs": (point) => `${point.flops_speedup.toFixed(2)}×` };
  if (data.times) names.ms = (point) => point.milliseconds.toFixed(2);
  const body = rule.points.map((point, at) => element("tr", at === setting ? { class: "here" } : {}, ...Object.values(names).map((of) => element("td", {}, of(point)))));
  const head = element("tr", {}, ...Object.keys(names).map((name) => element("th", { scope: "col" }, name)));
  $("table").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function layerAxis(container) {
  const many = Math.ceil(data.depth / Math.max(4, Math.floor(container.clientWidth / 34)));
  const labels = Array.from({ length: data.depth }, (_, at) => at + 1).filter((layer) => (layer - 1) % many === 0);
  return { range: [0.3, data.depth + 0.7], ticks: labels, label: "layers run" };
}

function drawPerLayer(setting) {
  const highest = Math.max(...data.per_layer.map((one) => one.high)), lowest = Math.min(0, ...data.per_layer.map((one) => one.low));
  const said = data.per_layer.map((one) => `${one.layers}: ${percent(one.score, 1)}`).join(", ");
  const chart = new Chart($("per-layer"), { title: `${data.metric} in % by layers run: ${said}`, x: layerAxis($("per-layer")), y: { range: [100 * lowest, 100 * Math.max(highest, 0.01) * 1.02], label: `${data.metric} (%)` } });
  for (const one of data.per_layer) {
    chart.bar(one.layers, 0.62, 100 * one.score, one.score >= data.full.score - 0.01 ? "" : "other", `after ${plural(one.layers, "layer")}: ${percent(one.score)} %, ${(one.flops / 1e6).toFixed(1)} MFLOPs`);
    chart.add("line", { class: "whisker", x1: chart.x(one.layers), x2: chart.x(one.layers), y1: chart.y(100 * one.low), y2: chart.y(100 * one.high) });
  }
}

function drawExits(units) {
  const counts = histogram(units.layers), shares = counts.map((count) => (100 * count) / data.kept);
  const said = counts.map((count, at) => [count, at + 1]).filter(([count]) => count).map(([count, layer]) => `${count} after ${layer}`).join(", ");
  const chart = new Chart($("exits"), { title: `${data.unit}s that leave after so many layers: ${said}`, x: layerAxis($("exits")), y: { range: [0, Math.max(...shares) * 1.05], label: `${data.unit}s (%)` } });
  counts.forEach((count, at) => chart.bar(at + 1, 0.62, shares[at], "", `${plural(count, data.unit)} after ${plural(at + 1, "layer")}`, { "data-layer": at + 1, "data-count": count }));
}

function drawGroups(units) {
  layerScale($("scale"), "Layers run:");
  const all = { title: "all", names: [`all ${data.unit}s`], of: new Uint8Array(data.kept) };
  $("groups").replaceChildren(...[all, ...groupings].map((grouping) => {
    const lines = grouping.names.map((name, number) => groupLine(name, units, (unit) => grouping.of[unit] === number));
    return element("div", { class: "grouping" }, ...(grouping === all ? [] : [element("h3", {}, `By ${grouping.title}`)]), ...lines);
  }));
}

function groupLine(name, units, belongs) {
  const counts = histogram(units.layers, belongs), { mean: layers, count } = mean(units.layers, belongs);
  const stack = element("div", { class: "stack", role: "img", "aria-label": counts.map((many, at) => [many, at + 1]).filter(([many]) => many).map(([many, layer]) => `${percent(many / count, 0)} % leave after ${layer}`).join(", ") });
  counts.forEach((many, at) => {
    if (!many) return;
    const part = element("i", { title: `${plural(many, data.unit)} after ${plural(at + 1, "layer")}` });
    part.style.width = `${(100 * many) / count}%`;
    part.style.background = layerColour(at + 1);
    stack.append(part);
  });
  const score = percent(mean(units.scores, belongs).mean, 1);
  return element("div", { class: "group", "data-group": name }, element("span", {}, name), stack,
    element("span", { class: "says" }, `${layers.toFixed(2)} layers · ${score} % · n ${count.toLocaleString("en")}`));
}

function drawTokens(units) {
  $("tokens-section").hidden = !data.tokens.length;
  layerScale($("token-scale"), "In so many layers:");
  const inks = Array.from({ length: data.depth }, (_, at) => inkOn(at + 1));
  $("tokens").replaceChildren(...data.tokens.map(({ unit, tokens, layers }) => {
    const run = Math.round(units.layers[unit]), line = element("p", { class: "text" });
    tokens.forEach((token, at) => {
      const left = layers[at] < run, seen = Math.min(layers[at], run);
      const told = left ? `left before layer ${layers[at] + 1}` : `ran all ${run} layers of this ${data.unit}`;
      const made = element("span", { class: seen ? "token" : "token gone", title: told, "data-layers": seen }, token);
      if (seen) Object.assign(made.style, { background: layerColour(seen), color: inks[seen - 1] });
      line.append(made);
    });
    line.append(element("span", { class: "muted" }, ` ${plural(run, "layer")} run`));
    return line;
  }));
}

function drawRows(rule, setting, units) {
  const known = data.rows.filter((row) => rule.name in row.answers).map((row) => ({ ...row, layers: units.layers[row.unit], work: total(rule, row.unit) }));
  known.sort((one, other) => other.layers - one.layers || other.work - one.work || one.unit - other.unit);
  const half = Math.ceil(known.length / 2);
  const line = (row) => {
    const state = rule.state(row.unit, setting), answer = row.said[row.answers[rule.name][state - rule.starts[row.unit]]], score = rule.scores[state] / 255;
    const verdict = score > 0.995 ? "right" : score < 0.005 ? "wrong" : "";
    const said = element("p", { class: "says" }, `${plural(Number(row.layers.toFixed(1)), "layer")}: `, element("span", { class: verdict }, answer), verdict ? ` (${verdict})` : ` (scores ${percent(score, 0)} %)`);
    if (row.right) said.append(` · right: ${row.right}`);
    if (row.said[0] !== answer) said.append(` · at full depth: ${row.said[0]}`);
    return element("li", {}, element("span", {}, row.text), said);
  };
  $("hardest").replaceChildren(...known.slice(0, half).map(line));
  $("easiest").replaceChildren(...known.slice(half).reverse().map(line));
}

// Layers that a unit runs, summed over all settings: how hard it is for a rule.
function total(rule, unit) {
  let sum = 0;
  for (let at = rule.starts[unit]; at < rule.starts[unit + 1]; at += 1) {
    const until = at + 1 < rule.starts[unit + 1] ? rule.from[at + 1] : rule.points.length;
    sum += rule.layers[at] * (until - rule.from[at]);
  }
  return sum;
}
