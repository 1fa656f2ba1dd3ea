// The page: an editor, whose text goes to the server while it is written, and the answers.
"use strict";

const AFTER_KEY_MS = 40;
const SLIDERS_MAX = 12;
const SLIDER_STEPS = 200;
const QUANTITY = /(^|[{,]\s*|\s)([\w-]+)\s*=\s*("?)(\d+(?:\.\d+)?)(\s*[A-Za-zµμ%][A-Za-zµμ%/]*)?\3(?=[ \t]*(?:[,}\]#]|$))/gm;
const STORED = "laxity-question";

const find = (selector) => document.querySelector(selector);
const token = new URLSearchParams(location.search).get("token") ?? "";
const text = find("#text");
let schema = {};
let bytesMax = 0;
let question = sessionStorage.getItem(STORED) ?? "check";
let asking = false;
let asked = null; // What was asked last, so that a change since then is seen.
let answer = null;
let timer = 0;

async function call(path, body) {
  const options = { headers: { "X-Laxity-Token": token } };
  if (body !== undefined) Object.assign(options, { method: "POST", body });
  const response = await fetch(path, options);
  return response.json();
}

// Asks about the text as it is now. While an answer is awaited nothing else is asked; what was written meanwhile is
// asked about then.
async function ask() {
  if (asking) return;
  const now = question + "\n" + text.value;
  if (now === asked) return;
  asking = true;
  asked = now;
  find("#now").classList.add("asking");
  const of = question;
  try {
    // The server closes the connection of a request that is too long, and the browser would tell nothing of its answer.
    const isTooLong = new TextEncoder().encode(text.value).length > bytesMax;
    const said = `a host file has at most ${bytesMax.toLocaleString("en")} bytes here`;
    answer = isTooLong ? { refused: said } : await call("/ask/" + of, text.value);
  } catch (error) {
    answer = { refused: "the server does not answer: is `laxity serve` still running?" };
  }
  asking = false;
  show(of);
  // What was refused may be asked again as it is.
  if (answer.refused) asked = null;
  if (question + "\n" + text.value !== now) ask();
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(ask, AFTER_KEY_MS);
}

function show(of) {
  const now = find("#now");
  const said = answer.refused ?? answer.text;
  now.className = answer.good === true ? "good" : answer.good === false || answer.refused ? "bad" : "";
  now.querySelector("h2").textContent = of;
  now.querySelector(".note").textContent = answer.note ?? "";
  now.querySelector("pre").textContent = said;
  find("#take").hidden = !answer.host;
  showProblems(answer.problems ?? []);
}

function showProblems(problems) {
  const list = find("#problems");
  list.replaceChildren();
  for (const problem of problems) {
    const button = document.createElement("button");
    const help = problem.help ? "\n" + problem.help : "";
    button.type = "button";
    button.textContent = `line ${problem.line}, column ${problem.column}: ${problem.message}${help}`;
    button.addEventListener("click", () => goTo(problem.line, problem.column));
    const item = document.createElement("li");
    item.append(button);
    list.append(item);
  }
  showLines(new Set(problems.map((problem) => problem.line)));
}

function showLines(wrong) {
  const lines = find("#lines");
  lines.replaceChildren();
  const count = text.value.split("\n").length;
  for (let line = 1; line <= count; line += 1) {
    const number = document.createElement("span");
    number.textContent = line + "\n";
    if (wrong.has(line)) number.className = "wrong";
    lines.append(number);
  }
  lines.scrollTop = text.scrollTop;
}

function goTo(line, column) {
  const before = text.value.split("\n").slice(0, line - 1);
  const place = before.reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
  text.focus();
  text.setSelectionRange(place, place);
  look();
}

// The table in which a place is: its header, where it begins and ends.
function tableAt(place) {
  let begin = 0;
  let path = [];
  let end = text.value.length;
  for (const match of text.value.matchAll(/^[ \t]*\[\[?([^\]\n]+)\]\]?[^\n]*$/gm)) {
    if (match.index > place) {
      end = match.index;
      break;
    }
    begin = match.index;
    path = match[1].split(".").map((part) => part.trim());
  }
  return { begin, end, path };
}

// What the schema says of a key of a table, or of tables within it.
function described(path, key) {
  let nodes = [schema];
  for (const part of path) {
    const next = nodes.flatMap((node) => alternatives(node)).map((node) => node.properties?.[part]).filter(Boolean);
    if (next.length) nodes = next;
  }
  for (let depth = 0; depth < 4; depth += 1) {
    const all = nodes.flatMap((node) => alternatives(node));
    for (const node of all) {
      const said = alternatives(node.properties?.[key]).map((each) => each.description).find(Boolean);
      if (said) return said;
    }
    nodes = all.flatMap((node) => Object.values(node.properties ?? {}));
  }
  return "";
}

// A node of the schema, with all that it refers to and may be.
function alternatives(node, depth = 0) {
  if (!node || depth > 6) return [];
  const others = [...(node.anyOf ?? []), ...(node.oneOf ?? []), ...(node.allOf ?? [])];
  if (node.items) others.push(node.items);
  if (node.$ref) {
    let target = schema;
    for (const part of node.$ref.replace("#/", "").split("/")) target = target?.[part];
    others.push(target);
  }
  return [node, ...others.flatMap((each) => alternatives(each, depth + 1))];
}

// Shows help and sliders for where the cursor is.
function look() {
  const place = text.selectionStart;
  const table = tableAt(place);
  const start = text.value.lastIndexOf("\n", place - 1) + 1;
  const stop = text.value.indexOf("\n", place);
  const line = text.value.slice(start, stop < 0 ? undefined : stop);
  const keys = [...line.matchAll(/([\w-]+)\s*=/g)].filter((match) => start + match.index <= place);
  const key = (keys.at(-1) ?? line.match(/([\w-]+)\s*=/))?.[1];
  const said = key ? described(table.path, key) : "";
  find("#help").textContent = said ? `${key}: ${said}` : "";
  showSliders(table, start, start + line.length);
}

function showSliders(table, lineStart, lineEnd) {
  const part = text.value.slice(table.begin, table.end);
  const found = [...part.matchAll(QUANTITY)].map((match) => ({
    key: match[2],
    number: Number(match[4]),
    place: table.begin + match.index + match[0].lastIndexOf(match[4] + (match[5] ?? "")),
    length: match[4].length,
    unit: match[5] ?? "",
    digits: match[4].includes(".") || match[5] ? 2 : 0,
  }));
  // Those of the cursor's line come first.
  const isHere = (value) => value.place >= lineStart && value.place <= lineEnd;
  const chosen = [...found.filter(isHere), ...found.filter((value) => !isHere(value))].slice(0, SLIDERS_MAX);
  chosen.sort((one, other) => one.place - other.place);
  const name = part.match(/^\s*name\s*=\s*"([^"]*)"/m)?.[1];
  find("#whose").textContent = chosen.length && name ? `Values of ${name}` : "";
  find("#sliders").replaceChildren(...chosen.map(slider));
}

function slider(value) {
  const label = document.createElement("label");
  const name = document.createElement("span");
  const range = document.createElement("input");
  const output = document.createElement("output");
  const most = Math.max(value.number * 2, value.digits ? 1 : 2);
  name.textContent = value.key;
  range.type = "range";
  range.min = value.digits ? most / SLIDER_STEPS : 0;
  range.max = most;
  range.step = value.digits ? most / SLIDER_STEPS : 1;
  range.value = value.number;
  output.textContent = value.number + value.unit;
  range.addEventListener("input", () => {
    const number = String(Number(Number(range.value).toFixed(value.digits)));
    text.setRangeText(number, value.place, value.place + value.length);
    move(value, number.length - value.length);
    output.textContent = number + value.unit;
    changed();
  });
  label.append(name, range, output);
  label.value = value;
  return label;
}

// Moves what stands behind a value whose length has changed.
function move(value, by) {
  value.length += by;
  for (const label of find("#sliders").children) {
    if (label.value.place > value.place) label.value.place += by;
  }
}

function changed() {
  showLines(new Set());
  // The answer is one to what was there before.
  find("#take").hidden = true;
  find("#save").href = "data:text/plain;charset=utf-8," + encodeURIComponent(text.value);
  soon();
}

function choose(name) {
  question = name;
  sessionStorage.setItem(STORED, name);
  for (const button of document.querySelectorAll("#questions button")) {
    button.setAttribute("aria-pressed", String(button.dataset.question === name));
  }
  ask();
}

// Keeps the answer beside those that follow.
function keep() {
  const kept = find("#kept");
  const now = find("#now");
  kept.className = now.className;
  for (const part of ["h2", ".note", "pre"]) {
    kept.querySelector(part).textContent = now.querySelector(part).textContent;
  }
  kept.querySelector("h2").textContent += ", kept";
  kept.dataset.text = text.value;
  kept.hidden = false;
  find("#drop").hidden = false;
  showDifference();
}

function showDifference() {
  const kept = find("#kept");
  if (kept.hidden) return;
  const before = kept.dataset.text.split("\n");
  const now = text.value.split("\n");
  const only = (lines, others, mark) => {
    const there = new Set(others);
    return lines.filter((line) => !there.has(line)).map((line) => mark + line);
  };
  const parts = [...only(before, now, "- "), ...only(now, before, "+ ")];
  kept.querySelector(".difference").textContent = parts.length ? parts.join("\n") : "Nothing differs.";
}

text.addEventListener("input", () => {
  changed();
  look();
  showDifference();
});
text.addEventListener("scroll", () => {
  find("#lines").scrollTop = text.scrollTop;
});
for (const event of ["click", "keyup"]) text.addEventListener(event, look);
find("#sliders").addEventListener("input", showDifference);
find("#keep").addEventListener("click", keep);
find("#drop").addEventListener("click", () => {
  find("#kept").hidden = true;
  find("#drop").hidden = true;
});
find("#take").addEventListener("click", () => {
  text.value = answer.host;
  changed();
  look();
});
for (const button of document.querySelectorAll("#questions button")) {
  button.addEventListener("click", () => choose(button.dataset.question));
}

call("/begin").then((begin) => {
  schema = begin.schema;
  bytesMax = begin.bytes_max;
  text.value = begin.text;
  changed();
  look();
  choose(question);
});
