"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    document.querySelectorAll("table.heat").forEach(paint);
  });

  // Sorting: numbers before dashes, a second click turns the order round.
  document.querySelectorAll("th.sortable").forEach((head) => {
    head.firstElementChild.addEventListener("click", () => {
      const table = head.closest("table");
      const place = [...head.parentElement.children].indexOf(head);
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const key = (row) => {
        const cell = row.children[place];
        if (head.dataset.kind === "text") return cell.textContent;
        const shown = table.dataset.shown;
        const text = shown ? cell.dataset[shown] : cell.dataset.value;
        return text === "" || text === undefined ? null : Number(text);
      };
      const sign = up ? 1 : -1;
      [...body.rows].map((row, i) => [key(row), i, row]).sort(([a, i], [b, j]) => {
        if (a === null || b === null) return (a === null) - (b === null) || i - j;
        return sign * (typeof a === "string" ? a.localeCompare(b) : a - b) || i - j;
      }).forEach(([, , row]) => body.append(row));
    });
  });

  // Heat maps: one hue for errors, two for differences; the number is always there to read.
  function paint(table) {
    const shown = table.dataset.shown = table.dataset.shown || "ours";
    const cells = [...table.querySelectorAll("td.cell")];
    const values = cells.map((cell) => cell.dataset[shown]).filter((text) => text !== "").map(Number);
    const high = Math.max(...values.map(Math.abs), 1);
    const dark = isDark();
    cells.forEach((cell) => {
      const text = cell.dataset[shown];
      const span = cell.firstElementChild;
      if (text === "") { span.textContent = "–"; span.style.background = "none"; span.style.color = "var(--dim)"; return; }
      const value = Number(text);
      const strength = Math.min(1, Math.abs(value) / high);
      const hue = shown === "difference" ? (value > 0 ? 12 : 210) : 212;
      const light = dark ? 16 + 44 * strength : 97 - 57 * strength;
      span.style.background = `hsl(${hue} ${shown === "difference" ? 62 : 58}% ${light}%)`;
      span.style.color = (dark ? light > 52 : light > 58) ? "#16202e" : "#fff";
      span.textContent = (shown === "difference" && value > 0 ? "+" : "") + value.toFixed(1).replace("-", "−");
    });
  }
  document.querySelectorAll("table.heat").forEach((table) => {
    const buttons = [...table.closest(".block").querySelectorAll(".segments button")];
    buttons.forEach((button) => button.addEventListener("click", () => {
      table.dataset.shown = button.dataset.show;
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      paint(table);
    }));
    paint(table);
  });

  // The explorer: choose a stream, see each method's error so far over the classes that came by.
  const { panels, rows, colours } = data;
  if (!panels.length) return;
  const levels = [["title", "Data"], ["stream", "Stream"], ["domain", "Domain"]];
  const chosen = { ...panels[0] };
  const hidden = new Set();
  const [choices, toggles, chart, strip] = ["choices", "toggles", "chart", "strip"].map((id) => document.getElementById(id));
  let plot = null;

  function element(name, attributes = {}, text = "") {
    const node = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.textContent = text;
    return node;
  }

  function choose() {
    choices.replaceChildren();
    let left = panels;
    levels.forEach(([level, name]) => {
      const values = [...new Set(left.map((panel) => panel[level]))];
      if (!values.includes(chosen[level])) chosen[level] = values[0];
      left = left.filter((panel) => panel[level] === chosen[level]);
      if (new Set(panels.map((panel) => panel[level])).size === 1) return; // nothing to choose
      const label = element("label", {}, name);
      const select = element("select", { id: `choose-${level}` });
      values.forEach((value) => select.append(element("option", value === chosen[level] ? { selected: "" } : {}, value)));
      select.addEventListener("change", () => { chosen[level] = select.value; choose(); });
      label.append(select);
      choices.append(label);
    });
    show(left[0]);
  }

  // A button per method: it hides and shows the line, and tells its value under the pointer.
  function show(panel) {
    const keys = Object.keys(panel.curves);
    const points = panel.curves[keys[0]].length;
    const x = Array.from({ length: points }, (_, i) => Math.round((i + 1) * panel.samples / points));
    const values = keys.map((key) => {
      const [name, colour, dash] = rows[key];
      const button = element("button", { type: "button", "data-method": key, "aria-pressed": String(!hidden.has(key)) }, name);
      button.style.setProperty("--colour", colour);
      button.classList.toggle("dashed", dash.length > 0);
      button.addEventListener("click", () => {
        if (!hidden.delete(key)) hidden.add(key);
        button.setAttribute("aria-pressed", String(!hidden.has(key)));
        plot.setSeries(keys.indexOf(key) + 1, { show: !hidden.has(key) });
      });
      return button.appendChild(element("b"));
    });
    toggles.replaceChildren(...values.map((value) => value.parentElement));
    const tell = (u) => values.forEach((value, i) => {
      value.textContent = ` ${panel.curves[keys[i]][u.cursor.idx ?? points - 1].toFixed(1)}`;
    });
    const colour = (name) => () => getComputedStyle(root).getPropertyValue(name);
    const top = (u) => {
      const shown = keys.filter((key) => !hidden.has(key)).flatMap((key) => panel.curves[key].slice(3));
      return [0, Math.min(100, 10 * Math.ceil(Math.max(10, ...shown) / 10))];
    };
    const options = {
      width: chart.clientWidth,
      height: chart.clientWidth < 560 ? 300 : 380,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [0, panel.samples] }, y: { range: top } },
      axes: [
        { stroke: colour("--dim"), grid: { show: false }, ticks: { stroke: colour("--line") }, label: "samples in order of arrival", labelSize: 22 },
        { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, size: 48, values: (_, ticks) => ticks.map((tick) => `${tick} %`) },
      ],
      series: [{}, ...keys.map((key) => ({
        label: rows[key][0], stroke: rows[key][1], dash: rows[key][2], show: !hidden.has(key),
        width: key === "note" ? 3.2 : 1.8, points: { show: false },
      }))],
      hooks: { setCursor: [tell], ready: [tell], draw: [place] },
    };
    plot?.destroy();
    strip.replaceChildren(...runs(panel));
    plot = new uPlot(options, [x, ...keys.map((key) => panel.curves[key])], chart);
  }

  // The classes that came by, a coloured stretch per run, as wide as the chart above.
  function runs(panel) {
    const stretches = [];
    for (let start = 0, end = 0; start < panel.labels.length; start = end) {
      while (end < panel.labels.length && panel.labels[end] === panel.labels[start]) end += 1;
      stretches.push(element("i", { style: `flex:${end - start};background:${colours[panel.classes][panel.labels[start]]}` }));
    }
    return stretches;
  }

  function place(u) {
    const ratio = devicePixelRatio || 1;
    strip.style.marginLeft = `${u.bbox.left / ratio}px`;
    strip.style.width = `${u.bbox.width / ratio}px`;
  }

  choose();
  addEventListener("resize", () => plot.setSize({ width: chart.clientWidth, height: plot.height }));
  document.getElementById("theme").addEventListener("click", () => plot.redraw());
})();
