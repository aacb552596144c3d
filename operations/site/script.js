// The search: every word must occur in a page's title, kind, date or summary. "/" moves to the field, Escape empties it.
"use strict";
const field = document.getElementById("search");
const results = document.getElementById("results");
const statusLine = document.getElementById("search-status");
const up = document.body.dataset.up;
const MOST = 50;

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.replaceChildren();
  statusLine.textContent = "";
  if (!words.length) return;
  const hits = window.SITE_PAGES.filter((page) => {
    const text = page.slice(0, 4).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  for (const [title, kind, date, , path] of hits.slice(0, MOST)) {
    const link = document.createElement("a");
    link.href = up + path;
    link.textContent = title;
    const item = document.createElement("li");
    item.append(link, ` ${kind} ${date}`);
    results.append(item);
  }
  statusLine.textContent = hits.length > MOST ? `${hits.length} pages; the first ${MOST} are shown` : `${hits.length} pages`;
}

field.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  } else if (event.key === "Escape" && document.activeElement === field) {
    field.value = "";
    show();
  }
});
