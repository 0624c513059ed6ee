
(() => {
  "use strict";
  // The pictures drawn already are replaced by ones that zoom, all over the same steps.
  const { meters, warmup } = JSON.parse(document.getElementById("readings").textContent);
  const drawn = meters.filter((meter) => meter.steps.length > 1);
  const tools = document.querySelector(".tools");
  if (!drawn.length) return;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const first = Math.min(...drawn.map((meter) => meter.steps[0]));
  const last = Math.max(...drawn.map((meter) => meter.steps[meter.steps.length - 1]));
  const plots = [];
  let shown = [first, last];

  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const format = (values, unit) => {
    const largest = Math.max(...values.map(Math.abs));
    let power = 0;
    if (unit === "bytes") while (power < units.length - 1 && largest >= 1024 ** (power + 1)) power++;
    const scale = 1024 ** power;
    const distance = values.length > 1 ? Math.abs(values[1] - values[0]) / scale : 1;
    let decimals = 0;
    while (decimals < 6 && Math.abs(distance - Number(distance.toFixed(decimals))) > distance / 1000) decimals++;
    const name = unit === "bytes" ? " " + units[power] : "";
    return values.map((value) =>
      (value / scale).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }) + name);
  };
  const binary = Array.from({ length: 61 }, (_, power) => 2 ** power);

  const show = (from, to) => {
    const span = Math.max(2, Math.min(to - from, last - first));
    from = Math.max(first, Math.min(from, last - span));
    shown = [from, from + span];
    for (const plot of plots) plot.setScale("x", { min: shown[0], max: shown[1] });
    if (tools) tools.querySelector("output").textContent =
      "steps " + Math.round(shown[0]).toLocaleString("en") + " to " + Math.round(shown[1]).toLocaleString("en");
  };

  const ROW = 16, ROWS = 6;
  const ink = (plot) => {
    plot.ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    return plot.ctx;
  };
  const marks = (meter) => (plot) => {
    const { bbox } = plot, ratio = devicePixelRatio, ctx = ink(plot);
    const taken = Array.from({ length: ROWS }, () => []);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, 0, bbox.width, bbox.top + bbox.height);
    ctx.clip();
    for (const mark of meter.marks.filter((one) => one.step >= shown[0] && one.step <= shown[1])) {
      const x = Math.round(plot.valToPos(mark.step, "x", true));
      const side = x > bbox.left + bbox.width / 2 ? -1 : 1;
      const [start, end] = [x, x + side * (ctx.measureText(mark.label).width + 12 * ratio)].sort((a, b) => a - b);
      let row = taken.findIndex((spans) => spans.every(([left, right]) => end < left || right < start));
      if (row < 0) row = ROWS - 1;
      taken[row].push([start, end]);
      const y = (14 + ROW * row) * ratio;
      ctx.strokeStyle = colour(mark.kind === "found" ? "leak" : mark.kind === "resolved" ? "ok" : "text");
      ctx.setLineDash(mark.kind === "found" ? [] : [3 * ratio, 3 * ratio]);
      ctx.lineWidth = 1.25 * ratio;
      ctx.beginPath();
      ctx.moveTo(x, y - 10 * ratio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.textAlign = side > 0 ? "left" : "right";
      ctx.fillStyle = colour("text");
      ctx.fillText(mark.label, x + 4 * side * ratio, y);
    }
    ctx.restore();
  };
  const shade = (plot) => {
    const { bbox } = plot, ctx = ink(plot);
    const width = Math.min(plot.valToPos(warmup, "x", true), bbox.left + bbox.width) - bbox.left;
    if (warmup <= first || width <= 0) return;
    ctx.fillStyle = colour("shade");
    ctx.fillRect(bbox.left, bbox.top, width, bbox.height);
    ctx.fillStyle = colour("text");
    ctx.textAlign = "left";
    if (width > 60 * devicePixelRatio) ctx.fillText("warm-up", bbox.left + 4, bbox.top + 14 * devicePixelRatio);
  };

  const draw = (meter) => {
    const place = document.querySelector("#meter-" + meter.number + " .chart");
    const label = place.querySelector("svg").getAttribute("aria-label");
    const height = place.getBoundingClientRect().height || 240;
    place.textContent = "";
    const axis = { stroke: () => colour("text"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { stroke: () => colour("line") } };
    const plot = new uPlot({
      width: place.clientWidth,
      height: Math.max(200, Math.min(260, height)),
      padding: [10 + ROW * Math.min(ROWS, meter.marks.length), 26, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "steps" }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => show(first, last) } },
      scales: {
        x: { time: false, range: () => shown },
        y: { range: (_, low, high) => {
          if (low === null) return [0, 1];
          if (meter.zero) low = Math.min(0, low);
          const room = Math.max(1, (high - low) * 0.04);
          return [meter.zero && low === 0 ? 0 : low - room, high + room];
        } },
      },
      axes: [
        { ...axis, incrs: [1, 2, 5].flatMap((n) => Array.from({ length: 16 }, (_, power) => n * 10 ** power)).sort((a, b) => a - b),
          values: (_, steps) => steps.map((step) => step.toLocaleString("en")) },
        { ...axis, size: 84, values: (_, values) => format(values, meter.unit), ...(meter.unit === "bytes" ? { incrs: binary } : {}) },
      ],
      series: [{}, { stroke: () => colour("curve"), width: 1.75, fill: () => colour("curve") + "1f", points: { show: (u) => u.scales.x.max - u.scales.x.min < 40 } }],
      hooks: {
        drawClear: [shade],
        draw: [marks(meter)],
        setSelect: [(u) => { if (u.select.width > 4) { show(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")); u.setSelect({ width: 0, height: 0 }, false); } }],
      },
    }, [meter.steps, meter.readings], place);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", label);
    plots.push(plot);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: plot.height })).observe(place);
  };

  drawn.forEach(draw);
  if (tools) {
    tools.hidden = false;
    tools.addEventListener("click", (event) => {
      const [from, to] = shown, middle = (from + to) / 2, half = (to - from) / 2;
      const zoom = {
        in: [middle - half / 2, middle + half / 2], out: [middle - 2 * half, middle + 2 * half],
        back: [from - half, to - half], on: [from + half, to + half], all: [first, last],
      }[event.target.dataset.zoom];
      if (zoom) show(...zoom);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((plot) => plot.redraw(false)));
  // For those who drive the page by script.
  window.leakhunter = { show, plots, shown: () => shown };
})();
