// The page: the wall or one stream, kept up to date.

import { live } from "./api.js";
import { bindButtons, fitCharts, forgetCharts, leaveStream, showStream } from "./stream.js";
import { showWall } from "./wall.js";

const by = (id) => document.getElementById(id);
let latest = null;
let told = "";
const ORDER = ["rolled back", "suspect", "drifting", "learning", "steady", "asleep"]; // by trouble

function place() {
  const match = location.hash.match(/^#\/streams\/([^/]+)$/);
  return match ? decodeURIComponent(match[1]) : null;
}

function trouble(sentence) {
  by("trouble").hidden = !sentence;
  by("trouble").textContent = sentence ?? "";
}

function showStates(look) {
  const states = Object.keys(look.states).sort((a, b) => ORDER.indexOf(a) - ORDER.indexOf(b));
  const words = states.map((state) => ({ state, text: `${look.states[state]} ${state}` }));
  const text = words.map((word) => word.text).join(", ");
  if (text === told) return; // a screen reader is told of changes only
  told = text;
  by("states").replaceChildren(...words.map(({ state, text }) => {
    const pill = document.createElement("span");
    pill.className = "state";
    pill.dataset.state = state;
    pill.textContent = text;
    return pill;
  }));
}

let busy = false;

async function draw() {
  const id = place();
  by("wall-view").hidden = id !== null;
  by("stream-view").hidden = id === null;
  document.title = `${id ?? "Streams"} · note-tta`;
  if (id === null) {
    leaveStream();
    if (latest) showWall(latest, by("find").value.trim());
  } else if (!busy) {
    busy = true;
    try {
      await showStream(id);
    } catch (error) {
      by("stream-why").textContent = error.message;
    } finally {
      busy = false;
    }
  }
}

function turnTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  forgetCharts();
  draw();
}

by("theme").addEventListener("click", turnTheme);
by("find").addEventListener("input", () => { location.hash = "#/"; draw(); });
addEventListener("hashchange", () => { draw(); by("content").focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("resize", fitCharts);
bindButtons();
draw();
live((look) => { latest = look; showStates(look); draw(); }, trouble);
