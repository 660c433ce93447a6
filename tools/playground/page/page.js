// The page: what the reader types and draws, and what is shown of it.

const EXAMPLES = {
  "Token bucket": "token-bucket 10/s burst=20",
  "Fixed window": "fixed-window 50/5s",
  "Sliding log": "sliding-log 50/5s",
  "Sliding window": "sliding-window 50/5s slices=5",
  "Leaky bucket": "leaky-bucket 10/s queue=20 max-wait=2s",
  "Two at once": "token-bucket 20/s burst=40 & fixed-window 100/10s",
};

const at = (id) => document.getElementById(id);
const ui = { rule: at("rule"), traffic: at("traffic"), seconds: at("seconds"), most: at("most"), drawing: at("drawing") };
const drawing = new Plot(ui.drawing, ["undecided", "at-once", "delayed", "refused", "cursor"]);
const passed = new Plot(at("passed"), ["at-once"]);
const waiting = new Plot(at("waiting"), ["delayed"]);
const remaining = new Plot(at("remaining"), ["level"]);

// The traffic that is drawn, the last report, and the column that the keyboard or the pointer is in.
let counts = parseTraffic("1x40 0x10 12x15 0x25 4x50 0x20 20x4", 20);
let report = null;
let cursor = 0;

const most = () => Number(ui.most.value);
const widthMs = () => (Number(ui.seconds.value) * 1000) / COLUMNS;

// Decides again, and shows everything.
function update() {
  const arrived = arrivals(counts, widthMs());
  const answer = decide(ui.rule.value, arrived, widthMs(), COLUMNS);
  showError("rule", answer.error);
  document.body.classList.toggle("outdated", Boolean(answer.error));
  // A rule that is half typed leaves the numbers of the last one, which are shown as outdated.
  report = answer.error ? null : answer;
  showTraffic();
  if (report) showReport();
  else at("summary").textContent = "Nothing is decided: the rule has an error.";
  writeAddressSoon();
}

function showError(name, message) {
  const field = ui[name];
  const text = at(`${name}-error`);
  text.textContent = message ?? "";
  text.hidden = !message;
  field.setAttribute("aria-invalid", String(Boolean(message)));
}

function showTraffic() {
  const { atOnce, delayed, refused } = report?.columns ?? { atOnce: [], delayed: [], refused: [] };
  drawing.scale(most());
  drawing.time(Number(ui.seconds.value));
  drawing.bars("undecided", report ? [] : counts);
  drawing.bars("at-once", atOnce);
  drawing.bars("delayed", delayed, atOnce);
  drawing.bars("refused", refused, atOnce.map((count, column) => count + delayed[column]));
  drawing.edges(windowEdges());
  at("edge-key").hidden = windowEdges().length === 0;
  at("column-width").textContent = `requests in each ${duration(widthMs())}`;
  for (const text of document.querySelectorAll(".per-column")) text.textContent = `in each ${duration(widthMs())}`;
  showCursor();
}

// The columns in which fixed windows begin, unless they are too many to be told apart.
function windowEdges() {
  const fixed = report?.windows.filter((window) => window.edge !== null) ?? [];
  return fixed.flatMap(({ edge, periodMs }) => {
    const edges = [];
    for (let at = edge || periodMs; at < widthMs() * COLUMNS; at += periodMs) edges.push(at / widthMs());
    return edges.length > 40 ? [] : edges;
  });
}

function showCursor() {
  const count = counts[cursor];
  const time = `${seconds(cursor * widthMs())}`;
  let text = `${time}: ${plural(count, "request")}`;
  if (report) {
    const { atOnce, delayed, refused } = report.columns;
    const parts = [[atOnce, "admitted"], [delayed, "later"], [refused, "refused"]];
    const counted = parts.filter(([counts]) => counts[cursor] > 0).map(([counts, what]) => `${counts[cursor]} ${what}`);
    if (counted.length > 0) text += `, ${counted.join(", ")}`;
  }
  at("readout").textContent = text;
  drawing.layers.cursor.setAttribute("d", `M${cursor} 0h1v${most()}h-1z`);
  ui.drawing.setAttribute("aria-valuemax", most());
  ui.drawing.setAttribute("aria-valuenow", count);
  ui.drawing.setAttribute("aria-valuetext", text);
}

function showReport() {
  const { atOnce, delayed, refused, columns, windows } = report;
  const offered = atOnce + delayed + refused;
  setNumber("offered", offered);
  setNumber("at-once", atOnce);
  setNumber("delayed", delayed);
  setNumber("refused", refused);
  setValue("longest-delay", report.longestDelay, delayed > 0 ? duration(report.longestDelay) : "–");
  const retryAfter = Math.ceil(report.longestRetryAfter / 1000);
  setValue("retry-after", retryAfter, retryAfterText(retryAfter));
  at("summary").textContent = `${report.rule} admits ${(atOnce + delayed).toLocaleString("en")} of ${plural(offered, "request")}.`;

  at("pictures").hidden = false;
  for (const figure of document.querySelectorAll(".if-delays")) figure.hidden = !report.mayDelay;
  show(passed, columns.passed, (name, greatest) => `At most ${plural(greatest, "request")} pass ${name}.`);
  passed.bars("at-once", columns.passed);
  show(waiting, columns.waiting, (_, greatest) => `At most ${plural(greatest, "request")} wait.`);
  waiting.steps("delayed", columns.waiting);
  show(remaining, [...columns.remaining, report.capacity], () => `Of ${report.capacity}, at least ${Math.min(...columns.remaining)} remain.`);
  remaining.steps("level", columns.remaining);
  remaining.edges(windowEdges());
  showWindows(windows);
}

function retryAfterText(value) {
  if (report.refused === 0) return "–";
  return report.longestRetryAfter === null ? "never" : `${value.toLocaleString("en")} s`;
}

// Scales a plot to its values, and describes it.
function show(plot, values, description) {
  const greatest = Math.max(...values);
  // A few requests do not fill the picture.
  plot.scale(Math.max(greatest, 5));
  plot.time(Number(ui.seconds.value));
  plot.element.setAttribute("aria-label", description(`in each ${duration(widthMs())}`, greatest));
}

// A number and a picture for each rule that is charged.
function showWindows(windows) {
  at("windows").replaceChildren(...windows.map((window) => {
    const figure = document.createElement("figure");
    figure.className = "window";
    const caption = append(figure, "figcaption");
    if (windows.length > 1) append(caption, "code").textContent = window.rule;
    append(caption, "span").textContent = `Most that passed within any ${duration(window.periodMs)}`;
    const numbers = append(caption, "strong");
    const number = append(numbers, "data");
    number.value = window.most;
    number.textContent = window.most.toLocaleString("en");
    const quota = append(numbers, "span");
    quota.className = "quota";
    quota.textContent = `quota ${window.amount.toLocaleString("en")}`;
    const chart = append(figure, "div");
    chart.className = "chart";
    const element = append(chart, "div");
    element.className = "plot";
    element.setAttribute("role", "img");
    const plot = new Plot(element, ["at-once", "quota"]);
    show(plot, [...window.within, window.amount], () => `Passed within the last ${duration(window.periodMs)}.`);
    plot.steps("at-once", window.within);
    plot.level("quota", window.amount);
    return figure;
  }));
}

function setNumber(id, value) {
  setValue(id, value, value.toLocaleString("en"));
}

function setValue(id, value, text) {
  at(id).value = value;
  at(id).textContent = text;
}

function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]];

// Seconds, or larger units if they are whole or many.
function duration(ms) {
  if (ms < 1000) return `${Number(ms.toFixed(1))} ms`;
  const [unit, length] = UNITS.find(([, length]) => ms % length === 0 || ms >= 100 * length) ?? ["s", 1000];
  return `${Number((ms / length).toFixed(2))} ${unit}`;
}

function seconds(ms) {
  return `${Number((ms / 1000).toFixed(2))} s`;
}

// Replaces the traffic by what was drawn.
function draw(next) {
  counts = next;
  ui.traffic.value = writeTraffic(counts);
  showError("traffic", null);
  update();
}

// The address has the rule, the traffic, the time and the height. Browsers refuse to change it many times a second, as
// drawing would.
let writing;
function writeAddressSoon() {
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 200);
}

function writeAddress() {
  const state = new URLSearchParams({
    rule: ui.rule.value, traffic: writeTraffic(counts), seconds: ui.seconds.value, most: ui.most.value,
  });
  history.replaceState(null, "", `#${state}`);
}

function readAddress() {
  const state = new URLSearchParams(location.hash.slice(1));
  ui.rule.value = state.get("rule") ?? EXAMPLES["Token bucket"];
  for (const choice of [ui.seconds, ui.most]) {
    choice.value = state.get(choice.id);
    if (choice.selectedIndex < 0) choice.selectedIndex = 0;
  }
  ui.traffic.value = state.get("traffic") ?? writeTraffic(counts);
  readTraffic();
}

function readTraffic() {
  try {
    counts = parseTraffic(ui.traffic.value, most());
    showError("traffic", null);
  } catch (error) {
    showError("traffic", error.message);
  }
  update();
}

// Buttons that fill in an example.
function buttons(parent, examples, choose) {
  for (const [name, example] of Object.entries(examples)) {
    const button = append(parent, "button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => choose(example));
  }
}

buttons(at("rules"), EXAMPLES, (rule) => {
  ui.rule.value = rule;
  update();
});
buttons(at("presets"), PRESETS, (preset) => {
  const { edge, periodMs, amount } = report?.windows[0] ?? { edge: 0, periodMs: Infinity, amount: 0 };
  // The window that begins next to the middle.
  const middle = (widthMs() * COLUMNS) / 2;
  const begin = periodMs > middle ? middle : (edge ?? 0) + Math.floor(middle / periodMs) * periodMs;
  draw(preset(most(), Math.round(begin / widthMs()), amount));
});
ui.rule.addEventListener("input", update);
ui.seconds.addEventListener("change", update);
// A lower picture cuts what is above it.
ui.most.addEventListener("change", () => draw(counts.map((count) => Math.min(count, most()))));
ui.traffic.addEventListener("input", readTraffic);
window.addEventListener("hashchange", readAddress);

// Drawing by a pointer. A fast one skips columns, which the line from its last place fills.
let last = null;
ui.drawing.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  ui.drawing.setPointerCapture(event.pointerId);
  last = place(event);
  drawLine(last, last);
});
ui.drawing.addEventListener("pointermove", (event) => {
  const here = place(event);
  if (last) {
    drawLine(last, here);
    last = here;
  } else {
    cursor = here.column;
    showCursor();
  }
});
for (const end of ["pointerup", "pointercancel"]) ui.drawing.addEventListener(end, () => { last = null; });

function place(event) {
  const box = drawing.svg.getBoundingClientRect();
  const within = (value, most) => Math.max(0, Math.min(most, value));
  return {
    column: within(Math.floor(((event.clientX - box.left) / box.width) * COLUMNS), COLUMNS - 1),
    count: within(Math.round((1 - (event.clientY - box.top) / box.height) * most()), most()),
  };
}

function drawLine(from, to) {
  const next = [...counts];
  const columns = Math.abs(to.column - from.column);
  for (let step = 0; step <= columns; step += 1) {
    const part = columns === 0 ? 1 : step / columns;
    const column = Math.round(from.column + part * (to.column - from.column));
    next[column] = Math.round(from.count + part * (to.count - from.count));
  }
  cursor = to.column;
  draw(next);
}

// Drawing by the keyboard.
const KEYS = {
  ArrowLeft: (step) => move(cursor - step),
  ArrowRight: (step) => move(cursor + step),
  Home: () => move(0),
  End: () => move(COLUMNS - 1),
  ArrowUp: (step) => change(counts[cursor] + step),
  ArrowDown: (step) => change(counts[cursor] - step),
  Delete: () => change(0),
  Backspace: () => change(0),
};
ui.drawing.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  act(event.shiftKey ? 5 : 1);
});

function move(column) {
  cursor = Math.max(0, Math.min(COLUMNS - 1, column));
  showCursor();
}

function change(count) {
  draw(counts.with(cursor, Math.max(0, Math.min(most(), count))));
}

readAddress();
