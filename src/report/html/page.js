"use strict";
(() => {
  const rows = Array.from(document.querySelectorAll(".row"));
  const search = document.getElementById("search");
  const kinds = Array.from(document.querySelectorAll("input[data-kind]"));
  const shown = document.getElementById("shown");
  if (rows.length === 0 || !search) return;
  // Once, not at each key: what a reader sees in the closed row.
  const texts = rows.map((row) => row.querySelector("summary").textContent.toLowerCase());

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
    rows.forEach((row, index) => {
      const fits = wanted.has(row.dataset.kind) && words.every((word) => texts[index].includes(word));
      if (row.hidden === fits) row.hidden = !fits;
      if (fits) count += 1;
    });
    shown.textContent = count + " of " + rows.length + " shown";
  };

  const find = (text) => {
    search.value = text;
    filter();
    const first = rows.find((row) => !row.hidden);
    if (!first) return;
    document.querySelector(".filter").scrollIntoView();
    first.querySelector("summary").focus({ preventScroll: true });
  };

  const duration = (ms) => (ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(1) + " s");

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
      rect.setAttribute("width", Math.max(6, Math.min(1000 - start, ((event.took || 0) / length) * 1000)));
      rect.setAttribute("height", 10);
      svg.append(rect);
    }
    return svg;
  };

  const timeline = (story, into) => {
    if (story.events.length === 0) return;
    into.append(make("h3", "", "Timeline"));
    const length = Math.max(1, story.length);
    const axis = make("div", "axis-line");
    axis.setAttribute("aria-hidden", "true");
    const ticks = make("div", "ticks");
    for (const part of [0, 0.5, 1]) ticks.append(make("span", "", part === 0 ? "0" : duration(length * part)));
    axis.append(ticks);
    const list = make("ol", "timeline");
    for (const event of story.events) {
      const line = make("li", "event");
      line.append(make("div", "when", event.at === null ? "?" : "+" + duration(event.at)));
      const words = make("div", "mono");
      words.append(make("p", "what " + event.kind + " " + event.tone, event.title));
      for (const [tone, text] of event.notes) words.append(make("p", tone, text));
      line.append(words, bar(event, length));
      list.append(line);
    }
    into.append(axis, list);
    if (story.more_events > 0) into.append(make("p", "faint", "… " + story.more_events + " more: crashlab view --raw"));
  };

  const list = (heading, lines, into) => {
    if (lines.length === 0) return;
    into.append(make("h3", "", heading));
    const items = make("ul", "plain mono");
    for (const [tone, text] of lines) items.append(make("li", tone, text));
    into.append(items);
  };

  const world = (changes, more, into) => {
    if (changes === null) return;
    into.append(make("h3", "", "World"));
    if (changes.length === 0) into.append(make("p", "faint", "unchanged"));
    const items = make("ul", "plain mono diff");
    for (const change of changes) {
      const item = make("li", change.tone, change.sign + " ");
      item.append(make("span", "path", change.path));
      if (change.before !== null) item.append(" ", make("del", "", change.before));
      if (change.before !== null && change.after !== null) item.append(" → ");
      if (change.after !== null) item.append(" ", make("ins", "", change.after));
      items.append(item);
    }
    into.append(items);
    if (more > 0) into.append(make("p", "faint", "… " + more + " more: crashlab view --raw"));
  };

  const text = (heading, words, into) => {
    const box = make("details", "more");
    box.open = heading === "Answer";
    box.append(make("summary", "", heading), make("pre", "", words));
    into.append(box);
  };

  const tell = (row) => {
    const data = document.getElementById("story-" + row.dataset.story);
    const into = row.querySelector(".story");
    if (!data || !into || into.childElementCount > 0) return;
    const story = JSON.parse(data.textContent);
    list("Checks", story.checks, into);
    list("Notes", story.notes, into);
    timeline(story, into);
    world(story.changes, story.more_changes, into);
    for (const [heading, words] of story.texts) text(heading, words, into);
    into.append(make("code", "shell", story.command));
  };

  const step = (by, fits) => {
    const visible = rows.filter((row) => !row.hidden);
    const here = visible.findIndex((row) => row.contains(document.activeElement));
    let at = here < 0 ? (by > 0 ? 0 : visible.length - 1) : here + by;
    while (at >= 0 && at < visible.length && !fits(visible[at])) at += by;
    if (at >= 0 && at < visible.length) visible[at].querySelector("summary").focus();
  };

  const close = () => {
    const row = rows.find((row) => row.contains(document.activeElement));
    if (!row) return;
    row.open = false;
    row.querySelector("summary").focus();
  };

  for (const row of rows) row.addEventListener("toggle", () => { if (row.open) tell(row); });
  search.addEventListener("input", filter);
  for (const box of kinds) box.addEventListener("change", filter);
  for (const button of document.querySelectorAll("button[data-find]")) {
    button.addEventListener("click", () => find(button.dataset.find));
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (event.key === "Escape" && typing) { search.value = ""; filter(); search.blur(); }
    else if (typing) return;
    else if (event.key === "Escape") close();
    else if (event.key === "/") { event.preventDefault(); search.focus(); }
    else if (event.key === "j") step(1, () => true);
    else if (event.key === "k") step(-1, () => true);
    else if (event.key === "n") step(1, (row) => row.dataset.kind !== "passed" && row.dataset.kind !== "improved");
  });
  document.querySelector(".filter").hidden = false;
  filter();
  // page.html#CASE/N opens that trial.
  let wanted = "";
  try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* no name of a trial */ }
  const row = rows.find((row) => row.querySelector(".name").textContent === wanted);
  if (row) {
    row.open = true;
    row.querySelector("summary").focus({ preventScroll: true });
    row.scrollIntoView();
  }
})();
