// Tables are sorted by a click on the head of a column: by size where cells are numbers with units, or else by name.
"use strict";
(() => {
const UNITS = {
  ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, "%": 0.01, k: 1e3, M: 1e6, G: 1e9,
};
const NUMBER = /^[<>]?\s*([-+−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([a-zµ%]*)(\/\w+)?/i;

// A number in base units; null for words.
function sizeOf(text) {
  const match = NUMBER.exec(text);
  if (!match) return null;
  const prefix = /^[kMG](?=bit|B|i?B)/.exec(match[2])?.[0];
  return Number(match[1].replaceAll(",", "").replace("−", "-")) * (UNITS[prefix ?? match[2]] ?? 1);
}

function compare(a, b) {
  const [left, right] = [sizeOf(a), sizeOf(b)];
  if (left !== null && right !== null) return left - right;
  if (left === null && right === null) return a.localeCompare(b, "en", { numeric: true });
  return left === null ? 1 : -1;
}

function sort(table, column, direction) {
  const rows = [...table.tBodies[0].rows];
  const text = (row) => row.cells[column]?.firstChild?.textContent.trim() ?? "";
  rows.sort((a, b) => direction * compare(text(a), text(b)));
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("main table")) {
  const heads = [...table.tHead.rows[0].cells];
  if (table.tBodies[0].rows.length < 2) continue;
  heads.forEach((head, column) => {
    const sorted = () => {
      const direction = head.ariaSort === "descending" ? 1 : head.ariaSort === "ascending" ? -1 : head.className === "number" ? -1 : 1;
      for (const other of heads) other.ariaSort = "none";
      head.ariaSort = direction > 0 ? "ascending" : "descending";
      sort(table, column, direction);
    };
    head.ariaSort = "none";
    head.tabIndex = 0;
    head.addEventListener("click", sorted);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sorted();
    });
  });
}
})();
