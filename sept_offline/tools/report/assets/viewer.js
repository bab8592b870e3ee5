// The episode viewer: one test episode, step by step, as a scene of its family or as plain columns.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 720;

// Text from data only ever becomes text: attributes are set one by one, nothing is parsed.
const shape = (name, attributes, ...children) => {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const words = (x, y, text, more = {}) => shape("text", { x, y, ...more }, text);
const brief = (name) => (name.length > 16 ? `${name.slice(0, 15)}…` : name);
const short = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());
const phase = (episode, step) => (step < episode.probe ? "var(--probe)" : "var(--control)");

// A scale from data to pixels; a constant column lies in the middle.
const scale = (values, from, to) => {
  let low = Infinity, high = -Infinity;
  for (const one of values) {
    if (one !== null) { low = Math.min(low, one); high = Math.max(high, one); }
  }
  if (!(low < high)) { const middle = Number.isFinite(low) ? low : 0; low = middle - 1; high = middle + 1; }
  return (value) => from + ((value - low) / (high - low)) * (to - from);
};

const planeScene = (episode, step) => {
  const { box, goal, walls = [], x, y } = episode.scene;
  const size = 400;
  const across = (value) => ((value - box[0]) / (box[1] - box[0])) * size;
  const down = (value) => size - ((value - box[2]) / (box[3] - box[2])) * size;
  const svg = shape("svg", { viewBox: `-6 -6 ${size + 12} ${size + 12}` });
  svg.append(shape("rect", { x: 0, y: 0, width: size, height: size, fill: "none", stroke: "var(--grid)", "stroke-width": 2 }));
  if (goal) {
    svg.append(shape("rect", { x: across(goal[0]), y: down(goal[3]), width: across(goal[1]) - across(goal[0]), height: down(goal[2]) - down(goal[3]), fill: "var(--goal)" }));
  }
  for (const wall of walls) {
    if (step < (wall.from ?? 0) || step >= (wall.to ?? Infinity)) continue;
    const [x0, y0, x1, y1] = wall.line;
    svg.append(shape("line", { x1: across(x0), y1: down(y0), x2: across(x1), y2: down(y1), stroke: "var(--wall)", "stroke-width": 6, "stroke-linecap": "round", class: "wall" }));
  }
  const at = (time) => {
    const [here, there] = [episode.observations[x][time], episode.observations[y][time]];
    return here === null || there === null ? null : [across(here), down(there)];
  };
  for (let time = 0; time < step; time++) {
    const [a, b] = [at(time), at(time + 1)];
    if (!a || !b) continue;
    svg.append(shape("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], stroke: phase(episode, time), "stroke-width": 2.5 }));
    svg.append(shape("circle", { cx: a[0], cy: a[1], r: 3, fill: phase(episode, time) }));
  }
  const now = at(step);
  if (now) svg.append(shape("circle", { cx: now[0], cy: now[1], r: 7, fill: "var(--ink)", class: "point" }));
  return [svg];
};

const linksScene = (episode, step) => {
  const { lengths, angles, goal } = episode.scene;
  const reach = lengths.reduce((sum, one) => sum + one, 0) * 1.1;
  const size = 400;
  const pixel = (value) => ((value + reach) / (2 * reach)) * size;
  const svg = shape("svg", { viewBox: `0 0 ${size} ${size}` });
  if (goal !== undefined) {
    svg.append(shape("line", { x1: 0, y1: pixel(-goal), x2: size, y2: pixel(-goal), stroke: "var(--wall)", "stroke-width": 1.5, "stroke-dasharray": "6 5" }));
  }
  // Angles are from hanging down, each from the link before it.
  const joints = (time) => {
    let turn = 0, place = [0, 0];
    return [place, ...lengths.map((length, link) => {
      turn += episode.observations[angles[link]][time];
      place = [place[0] + length * Math.sin(turn), place[1] + length * Math.cos(turn)];
      return place;
    })];
  };
  for (let time = Math.max(0, step - 12); time < step; time++) {
    const [x, y] = joints(time).at(-1);
    svg.append(shape("circle", { cx: pixel(x), cy: pixel(y), r: 2.5, fill: phase(episode, time), opacity: 0.6 }));
  }
  const now = joints(step);
  now.slice(1).forEach(([x, y], link) => {
    const [a, b] = now[link];
    svg.append(shape("line", { x1: pixel(a), y1: pixel(b), x2: pixel(x), y2: pixel(y), stroke: phase(episode, Math.min(step, episode.actions.length - 1)), "stroke-width": 9, "stroke-linecap": "round", class: "link" }));
  });
  for (const [x, y] of now) svg.append(shape("circle", { cx: pixel(x), cy: pixel(y), r: 5, fill: "var(--ink)" }));
  return [svg];
};

// One row of the strip below the columns: how much of something was given at each step, 0 to 1.
const strip = (svg, episode, top, name, given, x) => {
  svg.append(words(0, top + 11, brief(name)));
  episode.actions.forEach((action, time) => {
    const height = 13 * given(action);
    if (height > 0) {
      svg.append(shape("rect", { x: x(time), y: top + 13 - height, width: Math.max(x(time + 1) - x(time) - 0.5, 0.7), height, fill: phase(episode, time) }));
    }
  });
};

// How much of row `row` an action gives: a dose of the scene, a component of a box, or all of the action itself.
const amount = (episode, row) => {
  if (episode.bounds) {
    const [low, high] = [episode.bounds.low[row], episode.bounds.high[row]];
    return (action) => (action[row] - low) / (high - low);
  }
  if (episode.scene.kind === "doses") return (action) => Number(Boolean(episode.scene.given[action]?.[row]));
  return (action) => Number(action === row);
};

const named = (episode, action) =>
  episode.bounds ? action.map((one, row) => `${episode.action_names[row]} ${short(one)}`).join(", ") : episode.action_names[action] ?? String(action);

const columnsScene = (episode, step) => {
  const rows = episode.columns.length;
  const height = rows > 8 ? 36 : 52;
  const strips = episode.scene.kind === "doses" && !episode.bounds ? episode.scene.drugs : episode.action_names;
  const left = 110, total = episode.actions.length;
  const full = rows * height + strips.length * 18 + 16;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${full}`, style: `max-height: ${Math.max(full, 416)}px` });
  const x = (time) => left + (time / Math.max(total, 1)) * (WIDTH - left - 60);
  episode.columns.forEach((name, row) => {
    const top = row * height, values = episode.observations[row];
    const y = scale(values, top + height - 8, top + 6);
    svg.append(words(0, top + height / 2, brief(name)));
    svg.append(shape("line", { x1: left, y1: top + height - 3, x2: WIDTH - 60, y2: top + height - 3, stroke: "var(--grid)" }));
    const path = (until) => values.slice(0, until + 1).map((one, time) => (one === null ? "" : `${x(time)},${y(one)}`)).filter(Boolean).join(" ");
    svg.append(shape("polyline", { points: path(total), fill: "none", stroke: "var(--grid)", "stroke-width": 1.5 }));
    svg.append(shape("polyline", { points: path(step), fill: "none", stroke: "var(--ink)", "stroke-width": 1.8, class: "column" }));
    svg.append(words(WIDTH - 54, top + height / 2, short(values[step])));
  });
  strips.forEach((name, row) => {
    strip(svg, episode, rows * height + 6 + row * 18, name, amount(episode, row), x);
  });
  svg.append(shape("line", { x1: x(step), y1: 0, x2: x(step), y2: full, stroke: "var(--accent)", "stroke-width": 1.2, class: "cursor" }));
  return [svg];
};

const SCENES = { plane: planeScene, links: linksScene, doses: columnsScene, columns: columnsScene };
const PACE = 8; // seconds that a whole episode takes, at most 4 steps a second

class EpisodePlayer {
  constructor(element, episodes) {
    this.find = (name) => element.querySelector(`.${name}`);
    this.element = element;
    this.episodes = episodes;
    this.timer = null;
    this.step = 0;
    const runs = [...new Set(episodes.map((one) => one.run))];
    this.fill(this.find("run"), runs.map((name) => [name, name]));
    this.find("run").addEventListener("change", () => this.choose());
    this.find("episode").addEventListener("change", () => this.open());
    this.find("play").addEventListener("click", () => (this.timer ? this.pause() : this.play()));
    this.find("back").addEventListener("click", () => { this.pause(); this.show(this.step - 1); });
    this.find("forward").addEventListener("click", () => { this.pause(); this.show(this.step + 1); });
    this.find("slider").addEventListener("input", (event) => { this.pause(); this.show(Number(event.target.value)); });
    this.choose();
  }

  fill(select, options) {
    select.replaceChildren(...options.map(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      return option;
    }));
  }

  choose() {
    const own = this.episodes.flatMap((one, place) => (one.run === this.find("run").value ? [[one, place]] : []));
    this.fill(this.find("episode"), own.map(([one, place]) => {
      const end = one.solved === true ? ", solved" : one.solved === false ? ", not solved" : "";
      return [String(place), `${one.instance}, ${one.episode}: ${one.actions.length} steps${end}`];
    }));
    this.open();
  }

  open() {
    this.pause();
    this.episode = this.episodes[Number(this.find("episode").value)];
    this.find("slider").max = String(this.episode.actions.length);
    this.show(0);
  }

  play() {
    if (this.step >= this.episode.actions.length) this.show(0);
    this.find("readout").setAttribute("aria-live", "off"); // too fast to be read out
    const pause = Math.min(250, (PACE * 1000) / this.episode.actions.length);
    this.timer = setInterval(() => {
      this.show(this.step + 1);
      if (this.step >= this.episode.actions.length) this.pause();
    }, pause);
    this.label("❚❚", "Pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.find("readout").setAttribute("aria-live", "polite");
    this.label("▶", "Play");
  }

  label(text, name) {
    this.find("play").textContent = text;
    this.find("play").setAttribute("aria-label", name);
  }

  show(step) {
    const episode = this.episode, last = episode.actions.length;
    this.step = Math.max(0, Math.min(step, last));
    this.find("slider").value = String(this.step);
    this.element.dataset.step = String(this.step);
    const drawn = (SCENES[episode.scene.kind] ?? columnsScene)(episode, this.step);
    for (const svg of drawn) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `The episode after step ${this.step}`);
    }
    this.find("stage").replaceChildren(...drawn);
    const paid = episode.rewards.slice(0, this.step).reduce((sum, one) => sum + (one ?? 0), 0);
    const parts = [`step ${this.step} of ${last}`];
    if (this.step) {
      const done = this.step - 1;
      parts.push(`${done < episode.probe ? "probe" : "control"} chose ${named(episode, episode.actions[done])}`, `reward ${short(episode.rewards[done])}`);
    }
    parts.push(`return so far ${short(paid)}`);
    if (episode.latent && this.step >= (episode.moves ? last : episode.known)) {
      parts.push(`z = (${episode.latent.map(short).join(", ")})`);
      if (episode.novelty !== null) parts.push(`novelty ${short(episode.novelty)}${episode.flagged ? ", flagged" : ""}`);
    }
    this.find("readout").textContent = parts.join(" · ");
  }
}
