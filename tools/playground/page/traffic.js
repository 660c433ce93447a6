// Traffic: the number of requests in each column, as text and as instants.

const COLUMNS = 200;

// Reads groups such as `5x20 0x10 3`, of at most `most` requests in a column. Columns that are not named are empty.
function parseTraffic(text, most) {
  const counts = [];
  for (const group of text.split(/\s+/).filter(Boolean)) {
    const [, count, columns] = /^(\d{1,3})(?:[x×](\d{1,3}))?$/.exec(group) ?? fail(
      `\`${group}\` is no group of columns: expected requests×columns, as in \`5x20 0x10 3\``);
    if (count > most) {
      fail(`${count} requests in a column: expected at most ${most}; choose a greater height, or more columns, as in \`${most}x2\``);
    }
    for (let left = Number(columns ?? 1); left > 0; left -= 1) counts.push(Number(count));
  }
  if (counts.length > COLUMNS) {
    fail(`${counts.length} columns: expected at most ${COLUMNS}; take some out, or choose a longer time`);
  }
  return [...counts, ...Array(COLUMNS - counts.length).fill(0)];
}

function fail(message) {
  throw new Error(message);
}

function writeTraffic(counts) {
  const groups = [];
  for (const count of counts) {
    const last = groups.at(-1);
    if (last?.count === count) last.columns += 1;
    else groups.push({ count, columns: 1 });
  }
  // Columns at the end are empty unless named.
  if (groups.at(-1)?.count === 0) groups.pop();
  return groups.map(({ count, columns }) => (columns === 1 ? `${count}` : `${count}x${columns}`)).join(" ");
}

// Spreads the requests of each column evenly over it, from its beginning on.
function arrivals(counts, widthMs) {
  return counts.flatMap((count, column) =>
    Array.from({ length: count }, (_, index) => column * widthMs + Math.floor((index * widthMs) / count)));
}

// Makes traffic from a function of the column.
const columnsOf = (count) => Array.from({ length: COLUMNS }, (_, column) => count(column));
const between = (column, begin, end) => column >= begin && column < end;

// Examples. Each makes columns of at most so many requests; some look at the column in which a window begins, and at the units
// of its quota.
const PRESETS = {
  "Steady": (most) => columnsOf(() => most / 10),
  "One burst": (most) => columnsOf((column) => (between(column, 30, 36) ? most : 0)),
  "Two bursts at a window’s edge": (most, edge, amount) => {
    const long = Math.min(Math.ceil(amount / most), 20);
    return columnsOf((column) => (between(column, edge - long, edge + long) ? most : 0));
  },
  "Waves": (most) => columnsOf((column) => Math.round((most / 4) * (1 - Math.cos((column * Math.PI) / 25)))),
  "A greedy client": (most) => columnsOf(() => most),
  "Nothing": () => columnsOf(() => 0),
};
