// The timeline of a run: a canvas that zooms from the whole run to nanoseconds.
//
// The page has the whole run as an overview in cells, and exactly in stretches (crates/laxity-trace/src/levels.rs says
// how both are encoded). A stretch is decoded when it is looked at; where too many would be, the overview is drawn. Both
// are spans of time in which a VCPU ran on a CPU for a part of the time, so that one way of drawing does for both.
"use strict";
(() => {
const root = document.querySelector(".timeline");
if (!root || !window.DecompressionStream) return; // The figure stays what it was.
const run = JSON.parse(document.querySelector("#timeline-data").textContent);

const STRETCHES_MAX = 12; // So many are drawn at once.
const DECODED_MAX = 48; // So many are kept.
const BARS_MAX = 3000; // More spans are drawn by column.
const SIGN_PIXELS = 4; // Arrivals and completions that have less room are not drawn.
const CELLS_MIN = 512; // The coarsest level of the overview has no fewer.
const SPAN_NS_MIN = 20;
const LABEL_PIXELS = 136;
const NARROW_PIXELS = 560;
const TICK_PIXELS = 96;
const STRIP_PIXELS = 28;
const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];

// What is drawn.

class Bytes {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  number() {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  }

  ended() {
    return this.at === this.bytes.length;
  }

  signed() {
    const value = this.number();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  column(length) {
    return Float64Array.from({ length }, () => this.number());
  }

  signedColumn(length) {
    return Float64Array.from({ length }, () => this.signed());
  }

  // The numbers of jobs. A number stands as its difference from that of the same task before.
  jobs(tasks) {
    const last = new Map();
    return tasks.map((task) => {
      if (task < 0) return -1;
      const job = (last.get(task) ?? 0) + this.signed();
      last.set(task, job);
      return job;
    });
  }
}

function summed(steps, first) {
  let value = first;
  return steps.map((step) => (value += step));
}

function decodeStretch(bytes, fromNs) {
  const from = new Bytes(bytes);
  const length = from.number();
  const [cpu, vcpu, gap, ran, task] = Array.from({ length: 5 }, () => from.column(length));
  const ends = new Map();
  const start = gap.map((gapNs, at) => {
    const startNs = (ends.get(cpu[at]) ?? fromNs) + gapNs;
    ends.set(cpu[at], startNs + ran[at]);
    return startNs;
  });
  const end = start.map((startNs, at) => startNs + ran[at]);
  const tasks = task.map((number) => number - 1);
  const spans = { cpu, vcpu, start, end, ran, task: tasks, job: from.jobs(tasks) };
  const count = from.number();
  const [what, of, after] = Array.from({ length: 3 }, () => from.column(count));
  const points = { what, task: of, time: summed(after, fromNs), job: from.jobs(of) };
  const budgets = vcpus.map(() => {
    const points = from.number();
    const [times, values] = [from.signedColumn(points), from.signedColumn(points)];
    return { time: summed(times, fromNs), value: summed(values, 0) };
  });
  // By span, the time that the host had after exits, as pairs of their reason and the time.
  spans.exits = new Map();
  if (!from.ended()) {
    const times = from.number();
    const [step, exit, ns] = Array.from({ length: 3 }, () => from.column(times));
    summed(step, 0).forEach((at, which) => spans.exits.set(at, [...(spans.exits.get(at) ?? []), [exit[which], ns[which]]]));
  }
  return { spans, points, budgets };
}

function decodeOverview(bytes) {
  const from = new Bytes(bytes);
  const cellNs = from.number();
  const cpu = [], vcpu = [], start = [], end = [], ran = [];
  const missed = { vcpu: [], start: [], count: [] };
  for (let pairs = from.number(); pairs > 0; pairs -= 1) {
    const [ofCpu, ofVcpu, length] = [from.number(), from.number(), from.number()];
    const cells = summed(from.column(length), 0);
    from.column(length).forEach((idleNs, at) => {
      cpu.push(ofCpu);
      vcpu.push(ofVcpu);
      start.push(cells[at] * cellNs);
      end.push((cells[at] + 1) * cellNs);
      ran.push(cellNs - idleNs);
    });
  }
  for (let vcpus = from.number(); vcpus > 0; vcpus -= 1) {
    const [ofVcpu, length] = [from.number(), from.number()];
    const cells = summed(from.column(length), 0);
    from.column(length).forEach((count, at) => {
      missed.vcpu.push(ofVcpu);
      missed.start.push(cells[at] * cellNs);
      missed.count.push(count);
    });
  }
  return { cellNs, missed, spans: { cpu, vcpu, start, end, ran } };
}

// Every two cells of an overview together.
function coarser({ cellNs, missed, spans }) {
  const cell = (ns) => Math.floor(ns / cellNs / 2) * cellNs * 2;
  const into = { cpu: [], vcpu: [], start: [], end: [], ran: [] };
  spans.start.forEach((ns, at) => {
    const last = into.start.length - 1;
    if (last >= 0 && into.start[last] === cell(ns) && into.vcpu[last] === spans.vcpu[at] && into.cpu[last] === spans.cpu[at]) {
      into.ran[last] += spans.ran[at];
    } else {
      into.cpu.push(spans.cpu[at]);
      into.vcpu.push(spans.vcpu[at]);
      into.start.push(cell(ns));
      into.end.push(cell(ns) + 2 * cellNs);
      into.ran.push(spans.ran[at]);
    }
  });
  const misses = { vcpu: [], start: [], count: [] };
  missed.start.forEach((ns, at) => {
    const last = misses.start.length - 1;
    if (last >= 0 && misses.start[last] === cell(ns) && misses.vcpu[last] === missed.vcpu[at]) {
      misses.count[last] += missed.count[at];
    } else {
      misses.vcpu.push(missed.vcpu[at]);
      misses.start.push(cell(ns));
      misses.count.push(missed.count[at]);
    }
  });
  return { cellNs: 2 * cellNs, missed: misses, spans: into };
}

// The coarsest level of the overview that still has a cell for each column of the window.
function levelFor(fromNs, toNs) {
  const wanted = (toNs - fromNs) / (canvas.clientWidth || 1000);
  return levels.findLast(({ cellNs }) => cellNs <= wanted) ?? overview;
}

async function inflated(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const vcpus = [];
const tasks = [];
run.domains.forEach((domain, place) => {
  const first = vcpus.length;
  for (let vcpu = 0; vcpu < domain.vcpus; vcpu += 1) {
    vcpus.push({ domain: place, vcpu, of: domain.vcpus, name: domain.vcpus === 1 ? domain.name : `${domain.name}/${vcpu}` });
  }
  for (const task of domain.tasks) tasks.push({ ...task, vcpu: first + task.vcpu, name: `${domain.name}/${task.name}` });
});

let overview = null; // The finest of the levels.
let levels = [];
const stretches = run.stretches.map(([fromNs, toNs, text]) => ({ fromNs, toNs, text, data: null, asked: false }));
const decoded = [];

async function load(stretch) {
  if (stretch.asked) return;
  stretch.asked = true;
  stretch.data = decodeStretch(await inflated(stretch.text), stretch.fromNs);
  decoded.push(stretch);
  if (decoded.length > DECODED_MAX) {
    const oldest = decoded.shift();
    oldest.data = null;
    oldest.asked = false;
  }
  redraw();
}

// What is to be drawn of a window, each with the part of the window that it is for.
function sources(fromNs, toNs) {
  const inside = stretches.filter((each) => each.fromNs < toNs && each.toNs > fromNs);
  if (inside.length > STRETCHES_MAX) return [{ ...levelFor(fromNs, toNs), fromNs, toNs, exact: false }];
  return inside.map((each) => {
    if (each.text && !each.data) load(each);
    return { ...(each.data ?? levelFor(fromNs, toNs)), fromNs: Math.max(fromNs, each.fromNs), toNs: Math.min(toNs, each.toNs), exact: each.data !== null, waits: each.text !== null && !each.data, isLeftOut: each.text === null };
  });
}

// Words.

function timeText(ns, digits = 3) {
  if (ns === 0) return "0 s";
  const [unit, unitNs] = UNITS.find(([, each]) => Math.abs(ns) >= each) ?? UNITS[3];
  const whole = String(Math.trunc(Math.abs(ns) / unitNs)).length;
  return `${Number((ns / unitNs).toFixed(Math.max(0, digits - whole)))} ${unit}`;
}

// The time of a span that the host had after exits of the guest, by their reasons.
function exitsText(exits) {
  const byReason = new Map();
  for (const [exit, ns] of exits) byReason.set(exit, (byReason.get(exit) ?? 0) + ns);
  const parts = [...byReason].sort((a, b) => b[1] - a[1]);
  const all = parts.reduce((sum, [, ns]) => sum + ns, 0);
  return all ? `, of which the host had ${timeText(all)} after exits: ${parts.map(([exit, ns]) => `${run.exits[exit]} ${timeText(ns)}`).join(", ")}` : "";
}

// The causes of a lateness, which sum to it.
const causesText = (late) => late.causes.map(([ns, words]) => `${timeText(ns)}: ${words}`).join("; ");
const exactText = (ns) => timeText(Math.round(ns), 13);
const percentText = (ratio) => `${(100 * ratio).toPrecision(3)} %`;

// What is seen: the window, the lanes, what is chosen.

const find = (selector) => root.querySelector(selector);
const [axis, strip, canvas] = [find(".axis"), find(".strip canvas"), find(".lanes canvas")];
const lanesBox = find(".lanes");
const view = { fromNs: run.window[0], toNs: run.window[1] };
const unfolded = new Set(["cpus", ...run.open.map((domain) => `domain ${domain}`)]);
let lanes = [];
let chosen = -1;
let pointer = null;
let isNarrow = false;
let colours = {};
let drawn = [];

function show(fromNs, toNs) {
  const width = Math.min(run.duration_ns, Math.max(SPAN_NS_MIN, toNs - fromNs));
  const middle = (fromNs + toNs) / 2;
  view.fromNs = Math.max(0, Math.min(run.duration_ns - width, middle - width / 2));
  view.toNs = view.fromNs + width;
  redraw();
}

function zoom(factor, atNs = (view.fromNs + view.toNs) / 2) {
  const width = Math.min(run.duration_ns, Math.max(SPAN_NS_MIN, (view.toNs - view.fromNs) * factor));
  const fromNs = atNs - (atNs - view.fromNs) / (view.toNs - view.fromNs) * width;
  show(fromNs, fromNs + width);
}

function pan(part) {
  const byNs = part * (view.toNs - view.fromNs);
  show(view.fromNs + byNs, view.toNs + byNs);
}

// Shows a late job or packet, with as much on both sides as it took.
function choose(index) {
  chosen = index;
  const late = run.late[index];
  const aroundNs = Math.max(late.to_ns - late.from_ns, 1000) * 0.6;
  if (late.vcpu !== null) unfolded.add(`domain ${vcpus[late.vcpu].domain}`);
  layOut();
  show(late.from_ns - aroundNs, late.to_ns + aroundNs);
  say(`${late.what}: ${late.late}. ${causesText(late)}`);
  find(".late li[aria-current]")?.removeAttribute("aria-current");
  find(`.late li:nth-child(${index + 1})`)?.setAttribute("aria-current", "true");
}

function next(step) {
  if (!run.late.length) return;
  const first = run.late.findIndex((late) => late.from_ns >= view.fromNs);
  const from = chosen >= 0 ? chosen : step > 0 ? (first < 0 ? 0 : first) - 1 : first < 0 ? 0 : first;
  choose((from + step + run.late.length) % run.late.length);
}

function fold(key) {
  if (!unfolded.delete(key)) unfolded.add(key);
  layOut();
  redraw();
}

function say(text) {
  find(".said").textContent = text;
}

const hue = (domain) => (205 + domain * 137.508) % 360;

function colourOf(vcpu) {
  const { domain, vcpu: place, of } = vcpus[vcpu];
  const lighter = of > 1 ? (place / (of - 1) - 0.5) * 24 : 0;
  return `hsl(${hue(domain).toFixed(1)} 58% ${(colours.isDark ? 62 : 44) + lighter}%)`;
}

function labelOf(lane) {
  const label = document.createElement(lane.folds ? "button" : "span");
  label.className = lane.inner ? "inner" : "";
  label.dataset.key = lane.key;
  label.textContent = lane.name;
  if (lane.folds) {
    label.type = "button";
    label.addEventListener("click", () => fold(lane.key));
    if (lane.domain !== undefined) label.style.setProperty("--hue", hue(lane.domain).toFixed(1));
    else label.classList.add("plain");
  }
  return label;
}

function layOut() {
  const box = find(".labels");
  const made = [];
  const lane = (key, name, height, more) => made.push({ key, name, height, ...more });
  const isOpen = (key) => unfolded.has(key);
  const head = isNarrow ? 16 : 0;
  lane("cpus", `CPUs (${run.cpus})`, isOpen("cpus") ? 18 : 30, { folds: true, cpus: isOpen("cpus") ? [] : Array.from({ length: run.cpus }, (_, cpu) => cpu) });
  if (isOpen("cpus")) for (let cpu = 0; cpu < run.cpus; cpu += 1) lane(`cpu ${cpu}`, `CPU ${cpu}`, 24 + head, { cpus: [cpu], inner: true, head });
  run.domains.forEach((domain, place) => {
    const key = `domain ${place}`;
    const of = vcpus.flatMap((vcpu, at) => (vcpu.domain === place ? [at] : []));
    lane(key, domain.name, 20, { folds: true, vcpus: isOpen(key) ? [] : of, domain: place });
    if (isOpen(key)) for (const vcpu of of) lane(`vcpu ${vcpu}`, `VCPU ${vcpus[vcpu].vcpu}`, 58 + head, { vcpus: [vcpu], inner: true, head });
  });
  let y = 0;
  for (const each of made) {
    each.y = y;
    y += each.height + 3;
  }
  lanes = made;
  // A label that stays is the same element, so that it keeps the focus.
  const labels = new Map([...box.children].map((label) => [label.dataset.key, label]));
  const keys = new Set(made.map((each) => each.key));
  for (const [key, label] of labels) if (!keys.has(key)) label.remove();
  made.forEach((each, place) => {
    const label = labels.get(each.key) ?? labelOf(each);
    label.style.top = `${each.y}px`;
    if (each.folds) label.setAttribute("aria-expanded", String(unfolded.has(each.key)));
    if (box.children[place] !== label) box.insertBefore(label, box.children[place] ?? null);
  });
  find(".content").style.height = `${y}px`;
}

// Drawing.

let asked = false;
function redraw() {
  if (asked || !overview) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}

function pen(of, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (of.width !== Math.round(width * ratio) || of.height !== Math.round(height * ratio)) {
    of.width = Math.round(width * ratio);
    of.height = Math.round(height * ratio);
    of.style.width = `${width}px`;
    of.style.height = `${height}px`;
  }
  const context = of.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${getComputedStyle(root).fontFamily}`;
  return context;
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  colours = { ink: of("--ink"), muted: of("--muted"), line: of("--line"), shade: of("--shade"), card: of("--card"), ground: of("--ground"), bad: of("--bad") };
  colours.isDark = matchMedia("(prefers-color-scheme: dark)").matches;
}

// The time that each VCPU ran on each CPU in each column, by pairs of them; the spans themselves where they are few.
function columnsOf(from, width) {
  const perNs = width / (view.toNs - view.fromNs);
  const pairs = new Map();
  const bars = [];
  for (const source of from) {
    const { cpu, vcpu, start, end, ran } = source.spans;
    for (let at = 0; at < start.length; at += 1) {
      const startNs = Math.max(start[at], source.fromNs);
      const endNs = Math.min(end[at], source.toNs);
      if (startNs >= endNs) continue;
      if (source.exact && bars.length <= BARS_MAX) bars.push([source.spans, at]);
      const key = cpu[at] * vcpus.length + vcpu[at];
      let columns = pairs.get(key);
      if (!columns) pairs.set(key, columns = new Float32Array(width + 1));
      const share = ran[at] / (end[at] - start[at]);
      const [left, right] = [(startNs - view.fromNs) * perNs, (endNs - view.fromNs) * perNs];
      const [first, last] = [Math.floor(left), Math.floor(right)];
      if (first === last) {
        columns[first] += (right - left) * share;
      } else {
        columns[first] += (first + 1 - left) * share;
        for (let column = first + 1; column < last; column += 1) columns[column] += share;
        columns[last] += (right - last) * share;
      }
    }
  }
  return { pairs, bars: from.every((source) => source.exact) && bars.length <= BARS_MAX ? bars : null };
}

function draw() {
  const width = Math.max(120, lanesBox.clientWidth - (isNarrow ? 0 : LABEL_PIXELS));
  const height = Math.min(lanesBox.clientHeight, find(".content").clientHeight);
  const scrolled = lanesBox.scrollTop;
  const to = pen(canvas, width, height);
  const from = sources(view.fromNs, view.toNs);
  const { pairs, bars } = columnsOf(from, width);
  drawn = from;
  const x = (ns) => (ns - view.fromNs) / (view.toNs - view.fromNs) * width;
  const seen = lanes.filter((lane) => lane.y + lane.height > scrolled && lane.y < scrolled + height);
  const signs = signsOf(from, width);
  drawAxis(width);
  to.save();
  to.translate(0, -scrolled);
  drawTicks(to, width, scrolled, height);
  for (const lane of seen) {
    const top = lane.y + (lane.head ?? 0);
    const tall = lane.height - (lane.head ?? 0);
    if (lane.folds && !(lane.cpus ?? lane.vcpus).length) continue;
    const isVcpu = lane.vcpus !== undefined && lane.inner;
    const bar = isVcpu ? { top: top + 14, tall: 16 } : { top, tall };
    to.fillStyle = colours.shade;
    to.fillRect(0, bar.top, width, bar.tall);
    if (bars && lane.inner) drawBars(to, bars, lane, bar, x, width);
    else drawColumns(to, pairs, lane, bar, width);
    if (isVcpu) {
      drawBudget(to, from, lane.vcpus[0], top + 33, tall - 35, x, width);
      drawSigns(to, signs, lane.vcpus[0], top, x);
    }
    if (lane.vcpus) drawMisses(to, from, lane, bar, x);
  }
  drawMarks(to, x, scrolled, height);
  to.restore();
  drawWindow();
  Object.assign(root.dataset, { fromNs: Math.round(view.fromNs), toNs: Math.round(view.toNs), chosen, open: [...unfolded].sort().join(","), level: from.some((each) => each.waits) ? "loading" : from.every((each) => each.exact) ? "exact" : "overview", frames: Number(root.dataset.frames ?? 0) + 1 });
  if (root.dataset.level === "exact") root.drawnMs ??= performance.now();
  find(".window").textContent = `${exactText(view.fromNs)} to ${exactText(view.toNs)}: ${timeText(view.toNs - view.fromNs)}`;
  const isCoarse = from.some((each) => !each.exact && !each.waits);
  find(".coarse").hidden = !isCoarse;
  find(".coarse").textContent = from.some((each) => each.isLeftOut) ? "This file does not have all of the run exactly; with --window FROM..TO, laxity report keeps what is around that." : "A bar is as high as the part of the time that was used. Zoomed in, each run is shown.";
}

function drawColumns(to, pairs, lane, bar, width) {
  const of = [...pairs].map(([key, columns]) => ({ cpu: Math.floor(key / vcpus.length), vcpu: key % vcpus.length, columns }));
  const inside = of.filter((pair) => (lane.cpus ? lane.cpus.includes(pair.cpu) : lane.vcpus.includes(pair.vcpu)));
  inside.sort((a, b) => a.vcpu - b.vcpu);
  const scale = bar.tall / (lane.cpus ?? lane.vcpus).length;
  const tops = new Float32Array(width).fill(bar.top + bar.tall);
  for (const { vcpu, columns } of inside) {
    to.fillStyle = colourOf(vcpu);
    for (let column = 0; column < width; column += 1) {
      const tall = Math.min(1, columns[column]) * scale;
      if (tall <= 0) continue;
      const top = tops[column];
      let end = column + 1;
      while (end < width && columns[end] === columns[column] && tops[end] === top) tops[end++] = top - tall;
      to.fillRect(column, top - tall, end - column, tall);
      tops[column] = top - tall;
      column = end - 1;
    }
  }
}

function drawBars(to, bars, lane, bar, x, width) {
  to.textBaseline = "middle";
  for (const [spans, at] of bars) {
    if (lane.cpus ? lane.cpus[0] !== spans.cpu[at] : lane.vcpus[0] !== spans.vcpu[at]) continue;
    const left = Math.max(-1, x(spans.start[at]));
    const wide = Math.min(width + 1, x(spans.end[at])) - left;
    to.fillStyle = colourOf(spans.vcpu[at]);
    to.fillRect(left, bar.top, Math.max(0.6, wide - (wide > 4 ? 0.7 : 0)), bar.tall);
    const task = spans.task[at];
    const text = lane.cpus ? vcpus[spans.vcpu[at]].name : task < 0 ? "" : `${run.domains[vcpus[spans.vcpu[at]].domain].tasks.length > 1 ? tasks[task].name.split("/").pop() : ""}#${spans.job[at]}`;
    if (text && wide > 14 && wide > to.measureText(text).width + 8) {
      to.fillStyle = colours.isDark ? "#101214" : "#ffffff";
      to.fillText(text, left + 4, bar.top + bar.tall / 2 + 0.5);
    }
  }
}

// The points of exact sources: by VCPU, arrivals and completions only where they are few.
function signsOf(from, width) {
  const byVcpu = new Map();
  let count = 0;
  for (const source of from) {
    if (!source.exact) continue;
    const { what, task, time, job } = source.points;
    for (let at = 0; at < time.length; at += 1) {
      if (time[at] < view.fromNs || time[at] > view.toNs) continue;
      const { vcpu } = tasks[task[at]];
      if (!byVcpu.has(vcpu)) byVcpu.set(vcpu, []);
      byVcpu.get(vcpu).push([what[at], time[at], task[at], job[at]]);
      count += what[at] < 2;
    }
  }
  return { byVcpu, isFew: count * SIGN_PIXELS <= width * Math.max(1, byVcpu.size) };
}

function drawSigns(to, signs, vcpu, top, x) {
  for (const [what, timeNs] of signs.isFew ? signs.byVcpu.get(vcpu) ?? [] : []) {
    const at = x(timeNs);
    to.fillStyle = to.strokeStyle = colours.ink;
    to.lineWidth = 1;
    to.beginPath();
    if (what === 0) {
      to.moveTo(at, top + 1);
      to.lineTo(at + 3, top + 6);
      to.lineTo(at - 3, top + 6);
      to.fill();
      to.fillRect(at - 0.5, top + 5, 1, 9);
    } else if (what === 1) {
      to.arc(at, top + 10, 2.6, 0, 7);
      to.fillStyle = colours.card;
      to.fill();
      to.stroke();
    }
  }
}

function drawMisses(to, from, lane, bar, x) {
  to.fillStyle = colours.bad;
  const tick = (ns) => to.fillRect(x(ns) - 0.75, bar.top - (lane.inner ? 12 : 0), 1.5, bar.tall + (lane.inner ? 12 : 0));
  for (const source of from) {
    const { what, task, time } = source.points ?? {};
    if (source.exact) {
      for (let at = 0; at < time.length; at += 1) {
        if (what[at] === 2 && time[at] >= view.fromNs && time[at] <= view.toNs && lane.vcpus.includes(tasks[task[at]].vcpu)) tick(time[at]);
      }
    } else {
      let last = NaN;
      const { vcpu, start } = source.missed;
      for (let at = 0; at < start.length; at += 1) {
        if (start[at] < source.fromNs || start[at] > source.toNs || !lane.vcpus.includes(vcpu[at])) continue;
        const pixel = Math.floor(x(start[at]));
        if (pixel !== last) tick(start[at]);
        last = pixel;
      }
    }
  }
}

function drawBudget(to, from, vcpu, top, tall, x, width) {
  const path = [];
  for (const source of from) {
    if (!source.exact) return;
    const { time, value } = source.budgets[vcpu];
    for (let at = 0; at < time.length; at += 1) path.push([time[at], value[at]]);
  }
  const first = path.findLastIndex(([ns]) => ns <= view.fromNs);
  const last = path.findIndex(([ns]) => ns >= view.toNs);
  const shown = path.slice(Math.max(0, first), last < 0 ? undefined : last + 1);
  const [low, high] = shown.reduce(([low, high], [, value]) => [Math.min(low, value), Math.max(high, value)], [0, 0]);
  if (low === high || shown.length > width) return; // It is constant, or would be a block of colour.
  const y = (value) => top + tall * (high - value) / (high - low);
  to.beginPath();
  for (const [ns, value] of shown) to.lineTo(Math.max(-1e4, Math.min(1e5, x(ns))), y(value));
  if (last < 0) to.lineTo(width, y(shown[shown.length - 1][1]));
  to.strokeStyle = colourOf(vcpu);
  to.lineWidth = 1.2;
  to.stroke();
  const text = `${run.value} ${timeText(high)}`;
  const left = width - to.measureText(text).width - 3;
  to.textBaseline = "top";
  to.fillStyle = colours.ground;
  to.globalAlpha = 0.8;
  to.fillRect(left - 3, top - 1, width - left + 3, 14);
  to.globalAlpha = 1;
  to.fillStyle = colours.muted;
  to.fillText(text, left, top);
}

function drawMarks(to, x, scrolled, height) {
  to.strokeStyle = colours.bad;
  to.lineWidth = 1.2;
  const line = (ns, dash) => {
    to.setLineDash(dash);
    to.beginPath();
    to.moveTo(x(ns), scrolled);
    to.lineTo(x(ns), scrolled + height);
    to.stroke();
    to.setLineDash([]);
  };
  run.marks.forEach(([ns], at) => line(ns, at ? [2, 3] : []));
  const late = run.late[chosen];
  if (!late) return;
  to.fillStyle = colours.bad;
  to.globalAlpha = 0.12;
  to.fillRect(x(late.from_ns), scrolled, x(late.to_ns) - x(late.from_ns), height);
  to.globalAlpha = 1;
  if (late.due_ns !== null) line(late.due_ns, [5, 3]);
}

function ticks(width) {
  const roughly = (view.toNs - view.fromNs) / Math.max(2, width / TICK_PIXELS);
  const power = 10 ** Math.floor(Math.log10(roughly));
  const step = Math.max(1, [1, 2, 5, 10].find((factor) => factor * power >= roughly) * power);
  const first = Math.ceil(view.fromNs / step) * step;
  return { step, at: Array.from({ length: Math.floor((view.toNs - first) / step) + 1 }, (_, place) => first + place * step) };
}

function drawAxis(width) {
  const to = pen(axis, width, 34);
  const { step, at } = ticks(width);
  to.fillStyle = colours.muted;
  to.textBaseline = "top";
  // Where times would have too many digits they count from the first of them.
  const isLong = view.toNs / step > 1e5;
  const base = isLong ? at[0] : 0;
  if (isLong) to.fillText(`${exactText(base)} +`, 2, 2);
  const [unit, unitNs] = UNITS.find(([, each]) => Math.max(step, (isLong ? at[at.length - 1] - base : view.toNs) / 100) >= each) ?? UNITS[3];
  for (const ns of at) {
    const text = `${Number(((ns - base) / unitNs).toFixed(9))} ${unit}`;
    const left = (ns - view.fromNs) / (view.toNs - view.fromNs) * width;
    to.fillRect(left, 29, 1, 5);
    to.fillText(text, Math.max(1, Math.min(width - to.measureText(text).width - 1, left - to.measureText(text).width / 2)), 16);
  }
}

function drawTicks(to, width, scrolled, height) {
  to.fillStyle = colours.line;
  for (const ns of ticks(width).at) to.fillRect((ns - view.fromNs) / (view.toNs - view.fromNs) * width, scrolled, 1, height);
}

// The whole run in one strip, with its missed deadlines; the window in it.
function drawStrip() {
  const width = strip.parentElement.clientWidth;
  const to = pen(strip, width, STRIP_PIXELS);
  const busy = new Float64Array(width + 1);
  const { spans: { start, ran }, missed } = levelFor(0, run.duration_ns);
  for (let at = 0; at < start.length; at += 1) busy[Math.floor(start[at] / run.duration_ns * width)] += ran[at];
  const full = run.duration_ns / width * run.cpus;
  to.fillStyle = colours.muted;
  to.globalAlpha = 0.5;
  busy.forEach((ns, column) => to.fillRect(column, STRIP_PIXELS * (1 - Math.min(1, ns / full)), 1, STRIP_PIXELS));
  to.globalAlpha = 1;
  to.fillStyle = colours.bad;
  for (const ns of missed.start) to.fillRect(ns / run.duration_ns * width, 0, 1, 7);
  for (const late of run.late) if (late.is_packet) to.fillRect(late.from_ns / run.duration_ns * width, 0, 1, 7);
}

function drawWindow() {
  const frame = find(".strip div");
  frame.style.left = `${100 * view.fromNs / run.duration_ns}%`;
  frame.style.width = `max(3px, ${100 * (view.toNs - view.fromNs) / run.duration_ns}%)`;
}

// Pointing.

function describe(offsetX, offsetY) {
  const y = offsetY + lanesBox.scrollTop;
  const lane = lanes.find((each) => y >= each.y && y < each.y + each.height + 3);
  const ns = view.fromNs + offsetX / canvas.clientWidth * (view.toNs - view.fromNs);
  if (!lane || !(lane.cpus ?? lane.vcpus).length) return `${exactText(ns)}`;
  const source = drawn.find((each) => ns >= each.fromNs && ns <= each.toNs);
  if (!source) return "";
  const { cpu, vcpu, start, end, ran, task, job } = source.spans;
  const found = [];
  const aroundNs = source.exact ? (view.toNs - view.fromNs) / canvas.clientWidth : 0;
  for (let at = 0; at < start.length; at += 1) {
    if (start[at] <= ns + aroundNs && end[at] > ns - aroundNs && (lane.cpus ? lane.cpus.includes(cpu[at]) : lane.vcpus.includes(vcpu[at]))) found.push(at);
  }
  const inside = found.filter((at) => start[at] <= ns && end[at] > ns);
  const chosenSpans = inside.length ? inside : found;
  if (!chosenSpans.length) return `${exactText(ns)}: ${lane.cpus ? "the CPU is idle" : `${lane.name} does not run`}`;
  if (!source.exact) {
    const ranNs = new Map();
    for (const at of inside) ranNs.set(vcpu[at], (ranNs.get(vcpu[at]) ?? 0) + ran[at]);
    const parts = [...ranNs].sort((a, b) => b[1] - a[1]).slice(0, 6);
    return `${timeText(source.cellNs)} from ${exactText(start[inside[0]])}: ${parts.map(([of, each]) => `${vcpus[of].name} ran ${percentText(each / source.cellNs)}`).join(", ")}`;
  }
  return chosenSpans.slice(0, 3).map((at) => {
    let [sinceNs, untilNs] = [start[at], end[at]];
    let exits = source.spans.exits.get(at) ?? [];
    // A stretch's end cuts what runs through it.
    for (const other of [...drawn].reverse()) {
      if (!other.exact) continue;
      const same = other.spans.end.lastIndexOf(sinceNs);
      if (same >= 0 && other.spans.cpu[same] === cpu[at] && other.spans.vcpu[same] === vcpu[at] && other.spans.job[same] === job[at]) {
        sinceNs = other.spans.start[same];
        exits = [...exits, ...(other.spans.exits.get(same) ?? [])];
      }
    }
    const who = task[at] < 0 ? "" : `, for ${tasks[task[at]].name}#${job[at]}`;
    return `${vcpus[vcpu[at]].name} ran on CPU ${cpu[at]} from ${exactText(sinceNs)} to ${exactText(untilNs)} (${timeText(untilNs - sinceNs)})${who}${exitsText(exits)}`;
  }).join("; ");
}

function point() {
  if (pointer) say(describe(pointer.x, pointer.y));
}

// What people do.

const touches = new Map();
const timeAt = (event) => view.fromNs + event.offsetX / canvas.clientWidth * (view.toNs - view.fromNs);

canvas.addEventListener("pointerdown", (event) => {
  touches.set(event.pointerId, event.offsetX);
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  pointer = { x: event.offsetX, y: event.offsetY };
  const before = touches.get(event.pointerId);
  if (before !== undefined) {
    const others = [...touches].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    touches.set(event.pointerId, event.offsetX);
    if (others.length) {
      const [was, is] = [Math.abs(before - others[0]), Math.abs(event.offsetX - others[0])];
      const middle = view.fromNs + others[0] / canvas.clientWidth * (view.toNs - view.fromNs);
      if (was > 4 && is > 4) zoom(was / is, middle);
    } else {
      pan((before - event.offsetX) / canvas.clientWidth);
    }
  }
  point();
});
for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => touches.delete(event.pointerId));
canvas.addEventListener("pointerleave", () => (pointer = null));
canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event)));
canvas.addEventListener("wheel", (event) => {
  const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) zoom(1.0025 ** event.deltaY, timeAt(event));
  else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan(across / canvas.clientWidth);
  else return; // The page scrolls.
  event.preventDefault();
}, { passive: false });

const KEYS = {
  ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
  Home: () => show(0, run.duration_ns), End: () => show(...run.window), n: () => next(1), p: () => next(-1),
};
root.addEventListener("keydown", (event) => {
  const action = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key];
  if (!action) return;
  action();
  event.preventDefault();
});

const ACTIONS = {
  in: () => zoom(0.4), out: () => zoom(2.5), left: () => pan(-0.4), right: () => pan(0.4),
  all: () => show(0, run.duration_ns), cause: () => show(...run.window), next: () => next(1), previous: () => next(-1),
  fold: () => {
    const keys = ["cpus", ...run.domains.map((_, place) => `domain ${place}`)];
    const isOpen = keys.some((key) => unfolded.delete(key));
    keys.forEach((key) => unfolded.delete(key));
    if (!isOpen) keys.forEach((key) => unfolded.add(key));
    layOut();
    redraw();
  },
};
for (const button of root.querySelectorAll("button[data-do]")) button.addEventListener("click", ACTIONS[button.dataset.do]);

find(".strip").addEventListener("pointerdown", (event) => {
  const at = (event.clientX - strip.getBoundingClientRect().left) / strip.clientWidth * run.duration_ns;
  const half = (view.toNs - view.fromNs) / 2;
  show(at - half, at + half);
});

// A bar of the causes, each as long as its share of the lateness.
function sharesOf(late) {
  const bar = document.createElement("div");
  bar.className = "shares";
  for (const [ns, words] of late.causes) {
    const share = document.createElement("span");
    share.style.flexGrow = ns;
    share.title = `${exactText(ns)}: ${words}`;
    bar.append(share);
  }
  return bar;
}

run.late.forEach((late, index) => {
  const item = document.createElement("li");
  const button = document.createElement("button");
  const why = document.createElement("small");
  button.type = "button";
  button.textContent = `${late.what}: ${late.late}`;
  button.addEventListener("click", () => choose(index));
  why.textContent = causesText(late);
  item.append(button, sharesOf(late), why);
  find(".late ol").append(item);
});
find(".late").hidden = !run.late.length;
for (const button of root.querySelectorAll('[data-do="next"], [data-do="previous"]')) button.hidden = !run.late.length;

async function everything() {
  const all = { spans: [], exits: [], points: [], budgets: vcpus.map(() => []), levels: [] };
  for (const { fromNs, text } of stretches) {
    const { spans, points, budgets } = decodeStretch(await inflated(text), fromNs);
    spans.start.forEach((start, at) => all.spans.push([spans.cpu[at], spans.vcpu[at], start, spans.end[at]]));
    for (const [, exits] of spans.exits) all.exits.push(...exits);
    points.time.forEach((time, at) => all.points.push([points.what[at], points.task[at], time, points.job[at]]));
    // The last point of a stretch is also the next one's first.
    budgets.forEach(({ time, value }, vcpu) => time.forEach((ns, at) => {
      if (at || !all.budgets[vcpu].length) all.budgets[vcpu].push([ns, value[at]]);
    }));
  }
  for (const { spans } of levels) all.levels.push(spans.ran.map((ran, at) => [spans.vcpu[at], ran]));
  return all;
}

function describeAt(key, ns) {
  const lane = lanes.find((each) => each.key === key);
  return describe((ns - view.fromNs) / (view.toNs - view.fromNs) * canvas.clientWidth, lane.y + lane.height / 2 - lanesBox.scrollTop);
}

function resize() {
  isNarrow = root.clientWidth < NARROW_PIXELS;
  root.classList.toggle("narrow", isNarrow);
  readColours();
  layOut();
  if (overview) drawStrip();
  redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);
lanesBox.addEventListener("scroll", redraw);
root.hidden = false;
root.closest("figure").classList.add("drawn");
inflated(run.overview).then((bytes) => {
  overview = decodeOverview(bytes);
  levels = [overview];
  while (levels.at(-1).cellNs * CELLS_MIN < run.duration_ns) levels.push(coarser(levels.at(-1)));
  new ResizeObserver(resize).observe(root);
  resize();
  // The browser's tests look at what is decoded, and point without a pointer.
  Object.assign(root, { show, redraw, everything, describeAt });
});
})();
