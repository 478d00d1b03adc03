// Elements and drawings; whatever comes from the data is set as text or as a number, never as markup.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function ticks(low, high, most) {
  const rough = (high - low) / most || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * unit).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return { at: found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

// A drawing area in its container: two linear axes with units, and a place for marks in between.
class Chart {
  constructor(container, { x, y, title }) {
    const width = Math.max(container.clientWidth, 160), height = container.clientHeight;
    this.box = { left: 46, right: width - 12, top: 22, bottom: height - 40 };
    this.xs = x.range;
    this.ys = y.range;
    this.root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const { left, right, top, bottom } = this.box;
    const along = ticks(...this.ys, 6);
    for (const at of along.at) {
      this.add("line", { class: "grid", x1: left, x2: right, y1: this.y(at), y2: this.y(at) });
      this.text(left - 8, this.y(at) + 4, at.toFixed(along.digits), "end");
    }
    const across = x.ticks ? { at: x.ticks, digits: 0 } : ticks(...this.xs, Math.max(3, Math.floor((right - left) / 90)));
    for (const at of across.at) this.text(this.x(at), bottom + 18, at.toFixed(across.digits), "middle");
    this.add("line", { class: "grid", x1: left, x2: right, y1: bottom, y2: bottom });
    this.text(right, bottom + 35, x.label, "end");
    this.text(0, 10, y.label, "start");
    container.replaceChildren(this.root);
  }

  x(value) { return this.box.left + ((value - this.xs[0]) / (this.xs[1] - this.xs[0])) * (this.box.right - this.box.left); }
  y(value) { return this.box.bottom - ((value - this.ys[0]) / (this.ys[1] - this.ys[0])) * (this.box.bottom - this.box.top); }

  add(name, attributes, title) {
    const made = svg(name, attributes);
    if (title) made.append(svg("title", {}, title));
    this.root.append(made);
    return made;
  }

  text(x, y, words, anchor, kind = "") {
    this.root.append(svg("text", { x, y, "text-anchor": anchor, class: kind }, words));
  }

  line(points, kind) {
    this.add("path", { class: `line ${kind}`, d: "M" + points.map(([x, y]) => `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`).join("L") });
  }

  band(lower, upper, kind) {
    const around = [...lower, ...[...upper].reverse()];
    this.add("path", { class: `band ${kind}`, d: "M" + around.map(([x, y]) => `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`).join("L") + "Z" });
  }

  bar(x, width, value, kind, title, facts = {}) {
    const top = this.y(value), middle = this.x(x);
    const half = (this.x(x + width / 2) - this.x(x - width / 2)) / 2;
    this.add("rect", { class: `bar ${kind}`, x: middle - half, width: 2 * half, y: top, height: Math.max(0, this.box.bottom - top), rx: 2, ...facts }, title);
  }
}

// The colour of a layer, from the first to the last.
function layerColour(layer) {
  const share = data.depth > 1 ? Math.round((100 * (layer - 1)) / (data.depth - 1)) : 0;
  return `color-mix(in oklab, var(--late) ${share}%, var(--early))`;
}

// Black or white, whichever is easier to read on the colour of a layer in the present theme.
function inkOn(layer) {
  const canvas = document.createElement("canvas").getContext("2d"), probe = element("i");
  probe.style.color = layerColour(layer);
  document.body.append(probe);
  canvas.fillStyle = getComputedStyle(probe).color;
  probe.remove();
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => (value / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

function swatch(layer) {
  const made = element("span", { class: "swatch", "aria-hidden": "true" });
  made.style.background = layerColour(layer);
  return made;
}

function layerScale(container, words) {
  const first = data.stops[0], last = data.depth;
  const some = [...new Set([first, ...data.stops.filter((one, at) => at % Math.ceil(data.stops.length / 6) === 0), last])];
  container.replaceChildren(words, ...some.map((layer) => element("span", {}, swatch(layer), String(layer))));
}
