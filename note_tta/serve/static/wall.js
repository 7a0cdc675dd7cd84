// The wall: one tile per stream, those with the most trouble first.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 60;
const SETTLE = 3000; // milliseconds between two sortings, so that a tile can be aimed at

const wall = document.getElementById("wall");
const tiles = new Map();
let sorted = 0;

export const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`);

function stripe(canvas, labels) {
  canvas.width = 64;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  labels.forEach((label, place) => {
    context.fillStyle = `hsl(${(label * 137.5) % 360} 62% 52%)`;
    context.fillRect(place + 64 - labels.length, 0, 1, 1);
  });
}

function line(values) {
  const top = Math.max(0.4, ...values);
  const step = (value, place) => `${(WIDTH - values.length + place + 1).toFixed(1)} ${(38 - (36 * value) / top).toFixed(1)}`;
  return values.map(step).join(" L ");
}

function element(name, parent, attributes = {}) {
  const made = name === "svg" || name === "path" ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function makeTile(id) {
  const item = document.createElement("li");
  const link = element("a", item, { class: "tile", href: `#/streams/${encodeURIComponent(id)}` });
  element("b", link).textContent = id;
  const row = element("span", link, { class: "row" });
  const tile = { item, link, state: element("span", row, { class: "state" }), error: element("span", row) };
  const chart = element("svg", link, { viewBox: `0 0 ${WIDTH} 40`, preserveAspectRatio: "none", "aria-hidden": "true" });
  tile.area = element("path", chart, { class: "area" });
  tile.path = element("path", chart);
  const below = element("span", link, { class: "row" });
  tile.samples = element("span", below);
  tile.updates = element("span", below);
  tile.strip = element("canvas", link, { class: "strip", "aria-hidden": "true" });
  return tile;
}

function fill(tile, stream) {
  const words = stream.paused ? "paused" : stream.state;
  tile.link.dataset.state = stream.state;
  tile.link.title = stream.why;
  tile.state.dataset.state = words;
  tile.state.textContent = words;
  tile.error.textContent = percent(stream.expected_error);
  const error = stream.expected_error === null ? "" : `, expected error ${percent(stream.expected_error)}`;
  tile.link.setAttribute("aria-label", `${stream.id}: ${words}${error}, ${stream.samples} samples`);
  const drawn = line(stream.errors);
  tile.path.setAttribute("d", drawn ? `M ${drawn}` : "");
  tile.area.setAttribute("d", drawn ? `M ${WIDTH - stream.errors.length + 1} 40 L ${drawn} L ${WIDTH} 40 Z` : "");
  tile.samples.textContent = `${stream.samples.toLocaleString("en")} samples`;
  tile.updates.textContent = `${stream.updates} ${stream.updates === 1 ? "update" : "updates"}`;
  stripe(tile.strip, stream.predictions);
}

export function showWall(look, wanted) {
  const there = new Set();
  for (const stream of look.streams) {
    if (!stream.id.includes(wanted)) continue;
    there.add(stream.id);
    if (!tiles.has(stream.id)) tiles.set(stream.id, makeTile(stream.id));
    const tile = tiles.get(stream.id);
    fill(tile, stream);
    if (!tile.item.isConnected) wall.append(tile.item);
  }
  for (const [id, tile] of tiles) {
    if (there.has(id)) continue;
    tile.item.remove();
    tiles.delete(id);
  }
  sort(look.streams.filter((stream) => there.has(stream.id)));
  document.getElementById("empty").hidden = there.size > 0;
  const hidden = look.count - look.streams.length;
  const more = document.getElementById("more");
  more.hidden = hidden <= 0;
  more.textContent = `${hidden} more streams have less trouble, or have not sent anything since the service started.`;
}

// Nothing moves under a hand: while a tile is pointed at or has the keyboard, the order stays.
function sort(streams) {
  if (Date.now() - sorted < SETTLE || wall.matches(":hover, :focus-within")) return;
  sorted = Date.now();
  let place = wall.firstElementChild;
  for (const stream of streams) {
    const { item } = tiles.get(stream.id);
    if (item === place) place = place.nextElementSibling;
    else wall.insertBefore(item, place);
  }
}
