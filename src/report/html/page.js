"use strict";
(() => {
  const rows = Array.from(document.querySelectorAll(".row"));
  const search = document.getElementById("search");
  const kinds = Array.from(document.querySelectorAll("input[data-kind]"));
  const shown = document.getElementById("shown");

  // Text only ever goes in as text: nothing in the data can become an element.
  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(kinds.filter((box) => box.checked).map((box) => box.dataset.kind));
    let count = 0;
    for (const row of rows) {
      const text = row.dataset.text;
      const fits = wanted.has(row.dataset.kind) && words.every((word) => text.includes(word));
      row.hidden = !fits;
      if (fits) count += 1;
    }
    shown.textContent = count + " of " + rows.length + " shown";
  };

  const duration = (ms) => (ms < 1000 ? ms + " ms" : (ms / 1000).toFixed(1) + " s");

  const bar = (event, length) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 1000 10");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    if (event.at !== null) {
      const rect = document.createElementNS(space, "rect");
      const start = Math.min(990, (event.at / length) * 1000);
      rect.setAttribute("class", event.kind);
      rect.setAttribute("x", start);
      rect.setAttribute("width", Math.max(4, Math.min(1000 - start, ((event.took || 0) / length) * 1000)));
      rect.setAttribute("height", 10);
      svg.append(rect);
    }
    return svg;
  };

  const timeline = (story, into) => {
    if (story.events.length === 0) return;
    into.append(make("h3", "", "Timeline"));
    const length = Math.max(1, story.length);
    for (const event of story.events) {
      const line = make("div", "event");
      line.append(make("div", "when", event.at === null ? "?" : "+" + duration(event.at)));
      const words = make("div");
      words.append(make("p", "mono " + event.tone, event.title));
      for (const note of event.notes) words.append(make("p", "mono faint", note));
      line.append(words, bar(event, length));
      into.append(line);
    }
    if (story.more_events > 0) into.append(make("p", "faint", "… " + story.more_events + " more: crashlab view --raw"));
  };

  const list = (heading, lines, into) => {
    if (lines.length === 0) return;
    into.append(make("h3", "", heading));
    const items = make("ul", "plain mono");
    for (const [tone, text] of lines) items.append(make("li", tone, text));
    into.append(items);
  };

  const tell = (row) => {
    const data = document.getElementById("story-" + row.dataset.story);
    const into = row.querySelector(".story");
    if (!data || !into || into.childElementCount > 0) return;
    const story = JSON.parse(data.textContent);
    list("Notes", story.notes, into);
    timeline(story, into);
    list("World", story.changes, into);
    list("Checks", story.checks, into);
    for (const [heading, text] of story.texts) {
      into.append(make("h3", "", heading), make("pre", "", text));
    }
  };

  const step = (by) => {
    const visible = rows.filter((row) => !row.hidden);
    if (visible.length === 0) return;
    const at = visible.findIndex((row) => row.contains(document.activeElement));
    const next = at < 0 ? (by > 0 ? 0 : visible.length - 1) : Math.min(visible.length - 1, Math.max(0, at + by));
    visible[next].querySelector("summary").focus();
  };

  if (rows.length === 0 || !search) return;
  for (const row of rows) {
    // Here, not in each toggle: the text is what a reader sees in the closed row.
    row.dataset.text = row.querySelector("summary").textContent.toLowerCase();
    row.addEventListener("toggle", () => { if (row.open) tell(row); });
  }
  search.addEventListener("input", filter);
  for (const box of kinds) box.addEventListener("change", filter);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (event.key === "Escape" && typing) { search.value = ""; filter(); search.blur(); }
    else if (typing) return;
    else if (event.key === "/") { event.preventDefault(); search.focus(); }
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
  });
  document.querySelector(".filter").hidden = false;
  filter();
})();
