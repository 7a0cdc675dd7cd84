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
  const panels = data.panels;
  if (!panels.length) return;
  const levels = [["title", "Data"], ["stream", "Stream"], ["domain", "Domain"]];
  const chosen = { title: panels[0].title, stream: panels[0].stream, domain: panels[0].domain };
  const hidden = new Set();
  const element = (name, attributes = {}, text = "") => {
    const node = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.textContent = text;
    return node;
  };
  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  function choose() {
    const box = document.getElementById("choices");
    box.replaceChildren();
    let left = panels;
    levels.forEach(([level, name]) => {
      const values = [...new Set(left.map((panel) => panel[level]))];
      if (!values.includes(chosen[level])) chosen[level] = values[0];
      const label = element("label", {}, name);
      const select = element("select", { id: `choose-${level}` });
      values.forEach((value) => select.append(element("option", value === chosen[level] ? { selected: "" } : {}, value)));
      select.addEventListener("change", () => { chosen[level] = select.value; choose(); });
      label.append(select);
      box.append(label);
      left = left.filter((panel) => panel[level] === chosen[level]);
    });
    toggles(left[0]);
    draw(left[0]);
  }

  function toggles(panel) {
    const box = document.getElementById("toggles");
    box.replaceChildren();
    panel.series.forEach((series) => {
      const button = element("button", { type: "button", "data-method": series.key, "aria-pressed": String(!hidden.has(series.key)) });
      button.innerHTML = `<svg viewBox="0 0 24 8"><line x1="0" x2="24" y1="4" y2="4" stroke="${series.colour}" stroke-width="3" stroke-dasharray="${series.dash}"/></svg>${escape(series.name)}`;
      button.addEventListener("click", () => {
        if (!hidden.delete(series.key)) hidden.add(series.key);
        button.setAttribute("aria-pressed", String(!hidden.has(series.key)));
        draw(panel);
      });
      box.append(button);
    });
  }

  function draw(panel) {
    const narrow = document.getElementById("chart").clientWidth < 560;
    const width = narrow ? 380 : 960, height = narrow ? 320 : 400;
    const left = 42, right = width - 12, top = 12, bottom = height - 62;
    const shown = panel.series.filter((series) => !hidden.has(series.key));
    const highest = Math.max(10, ...shown.flatMap((series) => series.values.slice(3)));
    const step = highest > 50 ? 20 : 10;
    const high = Math.min(100, Math.ceil(highest / step) * step);
    const y = (value) => bottom - (bottom - top) * Math.min(value, high) / high;
    const parts = [];
    for (let tick = 0; tick <= high; tick += step) {
      parts.push(`<line x1="${left}" x2="${right}" y1="${y(tick)}" y2="${y(tick)}" stroke="var(--line)"/>`);
      parts.push(`<text x="${left - 8}" y="${y(tick) + 4}" text-anchor="end" fill="var(--dim)">${tick}</text>`);
    }
    shown.forEach((series) => {
      const points = series.values.map((value, i) => `${(left + (right - left) * i / (series.values.length - 1 || 1)).toFixed(1)},${y(value).toFixed(1)}`);
      parts.push(`<polyline data-method="${series.key}" points="${points.join(" ")}" fill="none" stroke="${series.colour}" stroke-width="${series.key === "note" ? 3.2 : 1.9}" stroke-dasharray="${series.dash}" stroke-linejoin="round"><title>${escape(series.name)}: ${series.values.at(-1)} %</title></polyline>`);
    });
    const size = (right - left) / panel.labels.length;
    for (let start = 0, end = 0; start < panel.labels.length; start = end) {
      while (end < panel.labels.length && panel.labels[end] === panel.labels[start]) end += 1;
      parts.push(`<rect class="run" shape-rendering="crispEdges" x="${(left + start * size).toFixed(2)}" y="${bottom + 12}" width="${((end - start) * size).toFixed(2)}" height="18" fill="${panel.colours[panel.labels[start]]}"/>`);
    }
    const base = bottom + 48;
    parts.push(`<text x="${left}" y="${base}" fill="var(--dim)">1</text><text x="${(left + right) / 2}" y="${base}" text-anchor="middle" fill="var(--dim)">${narrow ? "error so far (%)" : "samples in order of arrival · error so far (%)"}</text><text x="${right}" y="${base}" text-anchor="end" fill="var(--dim)">${panel.samples.toLocaleString("en")}</text>`);
    document.getElementById("chart").innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Cumulative error of each method over the stream">${parts.join("")}</svg>`;
  }
  choose();
  addEventListener("resize", choose);
})();
