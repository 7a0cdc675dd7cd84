// One stream: its health over time, what its memory holds, what happened, and what can be done.

import { ask, path } from "./api.js";
import { percent } from "./wall.js";

const by = (id) => document.getElementById(id);
const HEIGHT = 190;
const charts = {};
let shown = null;

function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function chart(id, times, values, least) {
  const holder = by(id);
  const data = [times, values];
  if (charts[id]) return charts[id].setData(data);
  const pick = colours();
  const lines = { stroke: pick("--line"), width: 1 };
  const axis = { stroke: pick("--dim"), grid: lines, ticks: lines };
  charts[id] = new uPlot({
    width: holder.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, least)] } },
    axes: [{ ...axis, space: 90, size: 34, values: (_, places) => places.map(clock) }, { ...axis, size: 56 }],
    series: [{}, { stroke: pick("--accent"), width: 2, fill: `${pick("--accent")}22`, points: { show: false } }],
  }, data, holder);
}

export function fitCharts() {
  for (const [id, drawn] of Object.entries(charts)) drawn.setSize({ width: by(id).clientWidth, height: HEIGHT });
}

export function forgetCharts() {
  for (const id of Object.keys(charts)) {
    charts[id].destroy();
    delete charts[id];
  }
}

const watched = ({ value, low, high }) => `${value.toFixed(1)} % (${low.toFixed(1)} to ${high.toFixed(1)})`;

function words(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const term = document.createElement("dt");
    const told = document.createElement("dd");
    term.textContent = name;
    told.textContent = value;
    const group = document.createElement("div");
    group.append(term, told);
    return group;
  }));
}

function drawMemory(memory, classes) {
  const list = by("memory");
  const name = (label) => (classes ? classes[label] : `class ${label}`);
  by("memory-note").textContent = memory.labels.length
    ? `The ${memory.labels.length} samples that the next update learns from, with the classes that were predicted.`
    : "It is empty.";
  if (!memory.pixels) {
    list.replaceChildren(...memory.labels.map((label) => {
      const item = document.createElement("li");
      item.textContent = name(label);
      return item;
    }));
    return;
  }
  const bytes = Uint8Array.from(atob(memory.pixels), (character) => character.charCodeAt(0));
  const [channels, height, width] = memory.shape;
  const size = height * width;
  const pictures = memory.labels.map((label, place) => ({ label, place })).sort((a, b) => a.label - b.label);
  list.replaceChildren(...pictures.map(({ label, place }) => {
    const item = document.createElement("li");
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `a sample, taken for ${name(label)}`);
    const image = new ImageData(width, height);
    for (let pixel = 0; pixel < size; pixel += 1) {
      for (let band = 0; band < 3; band += 1) {
        image.data[4 * pixel + band] = bytes[(place * channels + Math.min(band, channels - 1)) * size + pixel];
      }
      image.data[4 * pixel + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    item.append(canvas, name(label));
    return item;
  }));
}

function drawEvents(events) {
  by("no-events").hidden = events.length > 0;
  by("events-table").hidden = events.length === 0;
  by("events").replaceChildren(...events.toReversed().map((event) => {
    const row = document.createElement("tr");
    const when = typeof event.time === "number" ? new Date(1000 * event.time) : new Date(event.time);
    for (const text of [event.samples.toLocaleString("en"), when.toLocaleTimeString(), event.kind, event.cause]) {
      row.insertCell().textContent = text;
    }
    return row;
  }));
}

export async function showStream(id) {
  const first = shown !== id;
  if (first) {
    shown = id;
    by("stream-title").textContent = id;
    by("done").textContent = "";
    for (const part of ["memory", "events", "counters"]) by(part).replaceChildren();
    forgetCharts();
  }
  const [stream, memory] = await Promise.all([ask(path(id)), ask(`${path(id)}/memory`)]);
  if (shown !== id) return;
  const state = by("stream-state");
  state.textContent = stream.paused ? `${stream.state}, paused` : stream.state;
  state.dataset.state = stream.state;
  by("stream-why").textContent = stream.why;
  const pause = document.querySelector("[data-do=pause], [data-do=resume]");
  pause.dataset.do = stream.paused ? "resume" : "pause";
  pause.textContent = stream.paused ? "Learn again" : "Pause learning";
  chart("errors", stream.history.times, stream.history.expected_error.map((value) => 100 * value), 10);
  chart("distance", stream.history.times, stream.history.distance, 0.1);
  words(by("counters"), [
    ["expected error", percent(stream.expected_error)],
    ...(stream.health?.error ? [["error, by the watch", watched(stream.health.error)]] : []),
    ["distance", stream.distance.toFixed(3)],
    ["on disk up to", stream.durable === null ? "no store" : stream.durable.toLocaleString("en")],
    ...Object.entries(stream.counters).map(([name, value]) => [name.replaceAll("_", " "), value.toLocaleString("en")]),
  ]);
  drawMemory(memory, stream.classes);
  drawEvents(stream.events);
}

export function leaveStream() {
  shown = null;
}

const DONE = { pause: "Learning is paused.", resume: "It learns again.", rollback: "Rolled back.", reset: "Reset." };

export function bindButtons() {
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", async () => {
      const what = button.dataset.do;
      if (what === "reset" && !confirm(`Reset ${shown}? What it has learned is lost.`)) return;
      button.disabled = true;
      try {
        await ask(`${path(shown)}/${what}`, "POST");
        by("done").textContent = DONE[what];
        await showStream(shown);
      } catch (error) {
        by("done").textContent = error.message;
      } finally {
        button.disabled = false;
      }
    });
  }
}
