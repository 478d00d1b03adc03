"use strict";
// The data in the page: of every unit, in which states it is as a rule goes from cautious to fast.

const data = JSON.parse(document.getElementById("record").textContent);

function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

class Rule {
  constructor({ name, points, states }) {
    this.name = name;
    this.points = points;
    this.from = bytes(states.from);
    this.layers = bytes(states.layers);
    this.scores = bytes(states.scores);
    this.starts = [0]; // of each unit's states
    for (const count of bytes(states.counts)) this.starts.push(this.starts.at(-1) + count);
  }

  // Index, among all states, of the one that a unit is in.
  state(unit, setting) {
    let at = this.starts[unit];
    while (at + 1 < this.starts[unit + 1] && this.from[at + 1] <= setting) at += 1;
    return at;
  }

  // Of every unit the layers run and the score, 0 to 1.
  units(setting) {
    const layers = new Float64Array(data.kept), scores = new Float64Array(data.kept);
    for (let unit = 0; unit < data.kept; unit += 1) {
      const at = this.state(unit, setting);
      layers[unit] = this.layers[at] / data.layer_scale;
      scores[unit] = this.scores[at] / 255;
    }
    return { layers, scores };
  }

  // The setting that costs about as much as a given one of another rule.
  nearest(flops) {
    let best = 0;
    this.points.forEach((point, at) => {
      if (Math.abs(point.flops - flops) < Math.abs(this.points[best].flops - flops)) best = at;
    });
    return best;
  }
}

const rules = data.rules.map((rule) => new Rule(rule));
const groupings = data.groups.map((group) => ({ ...group, of: bytes(group.of) }));

function mean(values, chosen) {
  let sum = 0, count = 0;
  for (let at = 0; at < values.length; at += 1) if (chosen(at)) { sum += values[at]; count += 1; }
  return { mean: count ? sum / count : 0, count };
}

// How many units left after 1, 2, … layers; windows of a question on average, rounded.
function histogram(layers, chosen = () => true) {
  const counts = new Array(data.depth).fill(0);
  layers.forEach((value, unit) => { if (chosen(unit)) counts[Math.round(value) - 1] += 1; });
  return counts;
}

const percent = (value, digits = 2) => (100 * value).toFixed(digits);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
