// Pictures over time, as SVG that stretches over the width of the page.

const SVG = "http://www.w3.org/2000/svg";

// A plot in an element: layers that are drawn upon each other, and labels of both axes. One unit is a column wide.
class Plot {
  constructor(element, layers) {
    this.element = element;
    this.svg = append(element, "svg", SVG);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("aria-hidden", "true");
    this.layers = Object.fromEntries(["edge", ...layers].map((name) => {
      const path = append(this.svg, "path", SVG);
      path.setAttribute("class", name);
      path.setAttribute("vector-effect", "non-scaling-stroke");
      return [name, path];
    }));
    this.top = append(element, "span");
    this.top.className = "top";
    this.ticks = append(element, "div");
    this.ticks.className = "ticks";
  }

  // Sets the greatest value that the plot can show.
  scale(most) {
    this.most = most;
    this.svg.setAttribute("viewBox", `0 0 ${COLUMNS} ${most}`);
    // Beside the axis is room for few digits.
    this.top.textContent = most.toLocaleString("en", most < 10_000 ? {} : { notation: "compact" });
  }

  // Labels the time in four parts.
  time(seconds) {
    this.ticks.replaceChildren();
    const [unit, length] = seconds > 60 ? ["min", seconds / 60] : ["s", seconds];
    for (let part = 0; part <= 4; part += 1) {
      append(this.ticks, "span").textContent = part === 0 ? "0" : `${(length * part) / 4} ${unit}`;
    }
  }

  // Bars of these heights, on those of `below`.
  bars(name, heights, below = []) {
    const bars = heights.map((height, column) =>
      (height === 0 ? "" : `M${column + 0.06} ${this.most - (below[column] ?? 0)}v${-height}h.88v${height}z`));
    this.layers[name].setAttribute("d", bars.join(""));
  }

  // A line with a step at each column, and the area under it.
  steps(name, heights) {
    const line = heights.map((height) => `V${this.most - height}h1`).join("");
    this.layers[name].setAttribute("d", `M0 ${this.most}${line}V${this.most}z`);
  }

  // A level line, if it is within the plot.
  level(name, height) {
    this.layers[name].setAttribute("d", height > this.most ? "" : `M0 ${this.most - height}h${COLUMNS}`);
  }

  // Lines at these columns, which need not be whole.
  edges(columns) {
    this.layers.edge.setAttribute("d", columns.map((column) => `M${column} 0V${this.most}`).join(""));
  }
}

function append(parent, name, namespace) {
  const child = namespace ? document.createElementNS(namespace, name) : document.createElement(name);
  return parent.appendChild(child);
}
