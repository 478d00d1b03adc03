// The controls, and what does not depend on them.

const chosen = { rule: data.plan.rule, setting: data.plan.setting, axis: "flops", bands: false };

function choose(changes) {
  const before = rules[chosen.rule];
  if ("rule" in changes && !("setting" in changes)) {
    changes.setting = rules[changes.rule].nearest(before.points[chosen.setting].flops);
  }
  Object.assign(chosen, changes);
  draw();
}

function draw() {
  const rule = rules[chosen.rule];
  if (!rule) return drawWithoutRules();
  const point = rule.points[chosen.setting], units = rule.units(chosen.setting);
  $("rule").value = chosen.rule;
  Object.assign($("speed"), { max: rule.points.length - 1, value: chosen.setting });
  $("speed").setAttribute("aria-valuetext", `${point.rule}, ${point.flops_speedup.toFixed(2)} times fewer FLOPs`);
  $("setting").textContent = $("setting").title = point.rule;
  for (const button of $("legend").querySelectorAll("button")) button.setAttribute("aria-pressed", button.textContent === rule.name);
  drawFigures(point);
  drawCost(chosen);
  drawTable(rule, chosen.setting);
  drawPerLayer();
  drawExits(units);
  drawGroups(units);
  drawTokens(units);
  drawRows(rule, chosen.setting, units);
}

// No layer before the last has a head: there is nothing to choose.
function drawWithoutRules() {
  for (const id of ["controls", "exits", "groups", "scale", "legend", "table", "rows-title", "groups-title"]) $(id).closest("section, figure, details, ul").hidden = true;
  drawCost(chosen);
  drawPerLayer();
  if (data.tokens.length) drawTokens({ layers: new Float64Array(data.kept).fill(data.depth) });
}

function say() {
  $("name").textContent = data.name;
  $("about").textContent = `${data.family}, ${data.depth} layers · ${data.kind} · ${data.metric} on ${plural(data.units, data.unit)} · ${data.made.date.slice(0, 10)}`;
  $("plan").textContent = data.plan.text;
  const all = data.kept === data.units ? "" : ` What is shown of single ${data.unit}s is of ${data.kept.toLocaleString("en")} drawn at random; scores and costs are of all.`;
  const time = data.times ? ` Time was measured for ${plural(data.times.rows, "row")}, one at a time, that all leave after a layer (${data.times.runtime}, ${data.times.on.device}, ${plural(data.times.on.threads, "thread")}), and is weighted by how many leave there; the plan itself took ${data.times.plan.toFixed(2)} ms.` : "";
  $("cost-note").textContent = `Lines are exit rules from cautious, on the right, to fast; bands are 95 % intervals over resampled ${data.unit}s; the dashed line is full depth. A click on a line chooses its setting.${time}${all}`;
  $("rows-note").textContent = `By the layers they run at this setting, then over all settings of the rule. A ${data.unit}'s score is ${data.unit_score}.`;
  $("tokens-note").textContent = `Of some ${data.unit}s: the darker a token, the more layers it was in before it left or the ${data.unit} did.`;
  sayPromise();
  sayMade();
  if (data.bench) sayBench();
}

function sayPromise() {
  const promise = data.certificate, lines = [];
  if (promise) {
    $("promise").classList.add("kept");
    const confidence = promise.confidence === null ? "on average" : `with ${100 * promise.confidence} % confidence`;
    lines.push(element("p", {}, element("strong", {}, `Promised: ${promise.text}`)));
    lines.push(element("p", { class: "muted" }, `Certified ${confidence} on ${promise.units.toLocaleString("en")} units (${promise.method}), chosen on ${promise.selected_on.toLocaleString("en")} others; observed there: ${percent(promise.observed)} points lost, ${promise.speedup.toFixed(2)}× fewer FLOPs. It holds for texts like those, and is void once weights or plan change.`));
  } else if (data.void) {
    lines.push(element("p", {}, `Its certificate no longer holds: ${data.void}.`));
  } else {
    lines.push(element("p", {}, "Nothing is promised of this plan. ", element("code", {}, "paredown calibrate BUNDLE ROWS --max-drop 0.01"), " finds and certifies one."));
  }
  $("promise").replaceChildren(...lines);
}

function sayMade() {
  const facts = (of) => element("table", {}, element("tbody", {}, ...Object.entries(of).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, element("code", {}, value))))));
  const commands = data.made.commands.length ? [element("pre", {}, data.made.commands.join("\n"))] : [];
  $("made").replaceChildren(...commands,
    element("h3", {}, "Versions"), element("p", { class: "muted" }, Object.entries(data.made.versions).map(([name, value]) => `${name} ${value}`).join(" · ")),
    element("h3", {}, "sha256"), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "sha256 of data, model and plan" }, facts(data.made.hashes)));
}

function sayBench() {
  const { bench } = data, batches = Object.entries(bench.batches ?? {});
  $("bench-section").hidden = !batches.length;
  const missing = Object.entries(bench.not_measured ?? {}).map(([name, reason]) => ` ${name} was not measured: ${reason}.`).join("");
  $("bench-note").textContent = `Texts per second on ${bench.gpu ?? bench.cpu}, ${plural(bench.threads, "thread")}, ${bench.time} time; times the first, and the score where it was judged.${missing}`;
  $("bench").replaceChildren(...batches.map(([size, ways]) => {
    const most = Math.max(...Object.values(ways).map((one) => one.texts_per_second));
    const lines = Object.entries(ways).map(([name, one]) => {
      const stack = element("div", { class: "stack", role: "presentation" }), part = element("i");
      part.style.width = `${(100 * one.texts_per_second) / most}%`;
      part.style.background = name.endsWith(", plan") ? "var(--accent)" : "var(--quiet)";
      stack.append(part);
      return element("div", { class: "group bench" }, element("span", {}, name), stack, element("span", { class: "says" }, `${one.texts_per_second.toFixed(0)} texts/s · ${one.times_transformers.toFixed(2)}×${one.score == null ? "" : ` · ${percent(one.score, 1)} %`}`));
    });
    return element("div", {}, element("h3", {}, `Batches of ${size}`), ...lines);
  }));
}

function listen() {
  rules.forEach((rule, at) => {
    $("rule").append(element("option", { value: at }, rule.name));
    const button = element("button", { type: "button" }, rule.name);
    button.addEventListener("click", () => choose({ rule: at }));
    $("legend").append(element("li", {}, button));
  });
  for (const [name, { label }] of Object.entries(AXES)) {
    if (name === "milliseconds" && !data.times) continue;
    const input = element("input", { type: "radio", name: "axis", value: name, id: `axis-${name}` });
    input.checked = name === chosen.axis;
    input.addEventListener("change", () => choose({ axis: name }));
    $("axes").append(element("label", {}, input, label));
  }
  $("rule").addEventListener("change", (event) => choose({ rule: Number(event.target.value) }));
  $("speed").addEventListener("input", (event) => choose({ setting: Number(event.target.value) }));
  $("bands").addEventListener("change", (event) => choose({ bands: event.target.checked }));
  $("to-plan").addEventListener("click", () => choose({ rule: data.plan.rule, setting: data.plan.setting }));
  $("to-plan").hidden = !data.plan.exit;
  $("to-full").addEventListener("click", () => choose({ setting: 0 }));
  let width = $("cost").clientWidth;
  new ResizeObserver(([{ contentRect }]) => { if (contentRect.width !== width) { width = contentRect.width; draw(); } }).observe($("cost"));
}

// Light or dark as the system has it, until the button says otherwise.
function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = (is) => {
    document.documentElement.dataset.theme = is ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", is);
  };
  const change = (is) => { show(is); draw(); };
  show(dark.matches);
  dark.addEventListener("change", () => change(dark.matches));
  $("theme").addEventListener("click", () => change(document.documentElement.dataset.theme !== "dark"));
}

theme();
say();
listen();
draw();
