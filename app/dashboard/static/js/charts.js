// The charts of the overview, on one axis of time. Colours are those of the legend, which reads what is under the
// pointer; gaps stay gaps, and a press on a bucket leads to its jobs.

const STACK = ["lease_lost", "interrupted", "crashed", "dead", "failed"]; // from the top: each covers what is below it
const DAY = 86400;
const COUNTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8];
const SPANS = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 240, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800];

export function charts() {
  const region = document.getElementById("charts");
  if (!region || !window.uPlot) return;
  const { uPlot } = window;
  let drawn = [];
  let data = {};

  const own = (item, name, pseudo) => getComputedStyle(item, pseudo)[name];
  const ink = (name) => {
    const probe = document.createElement("i");
    probe.className = name;
    region.append(probe);
    const found = own(probe, "color");
    probe.remove();
    return found;
  };
  // A hollow mark of the legend has its outline as an inner shadow, a solid one none.
  const looks = (figure, column) => {
    const item = figure.querySelector(`[data-line=${column}]`);
    const fill = own(item, "backgroundColor", "::before");
    const edge = own(item, "boxShadow", "::before").match(/^(?:rgb|color)[^)]*\)/);
    return { fill, stroke: edge?.[0] ?? fill };
  };
  const faint = (colour) => colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.14)").replace(/^(color\(.*)\)$/, "$1 / 0.14)");

  const clock = (seconds) => {
    const at = new Date(seconds * 1000);
    const time = at.toISOString().slice(11, 16);
    return data.at.at(-1) - data.at[0] > DAY ? `${at.toLocaleDateString("en", { weekday: "short", timeZone: "UTC" })} ${time}` : time;
  };
  const place = (u, left) => {
    const at = u.posToVal(left, "x");
    return Math.max(0, data.at.findLastIndex((each) => each <= at));
  };

  // Lets the legend say one bucket, or what it says at rest.
  const read = (figure, at) => {
    const scope = figure.querySelector("[data-scope]");
    scope.dataset.rest ??= scope.textContent;
    scope.textContent = at === null ? scope.dataset.rest : `${clock(data.at[at])} to ${clock(data.at[at] + data.step)}`;
    for (const item of figure.querySelectorAll("[data-line]")) {
      const value = at === null ? null : data[item.dataset.line][at];
      const said = item.querySelector("b");
      said.dataset.rest ??= said.textContent;
      said.textContent = at === null ? said.dataset.rest : value === null ? "–" : figure.matches(":has([data-chart=waits])") ? spell(value) : value.toLocaleString("en");
    }
  };

  const marks = (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = ink("dim");
    ctx.font = `${11 * devicePixelRatio}px sans-serif`;
    const above = bbox.top - 5 * devicePixelRatio;
    ctx.textAlign = "left";
    if (!u.isFirst) ctx.fillText("not completed", bbox.left, above);
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const [at, version] of data.deploys) {
      const x = Math.round(u.valToPos(at, "x", true)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.textAlign = x > bbox.left + bbox.width / 2 ? "right" : "left";
      if (u.isFirst) ctx.fillText(version, x, above);
    }
    ctx.restore();
  };

  const one = (node, height, series, values, axes, isFirst) => {
    const figure = node.closest("figure");
    const u = new uPlot(
      {
        width: Math.max(200, node.clientWidth),
        height,
        padding: [18, 16, isFirst ? null : 0, null],
        legend: { show: false },
        cursor: { sync: { key: "overview" }, drag: { x: false, y: false }, points: { show: false }, y: false },
        scales: { x: { range: () => [data.at[0], data.at.at(-1) + data.step] }, y: { range: (_, low, high) => [0, Math.max(1, high ?? 1)] } },
        axes,
        series: [{}, ...series],
        hooks: { draw: [marks], setCursor: [(u) => read(figure, (u.cursor.left ?? -1) < 0 ? null : place(u, u.cursor.left))] },
      },
      // A step is as wide as its bucket, the last one, too.
      [[...data.at, data.at.at(-1) + data.step], ...values.map((each) => [...each, series[0].isStep ? each.at(-1) : null])],
      node,
    );
    u.isFirst = isFirst;
    u.over.addEventListener("click", (event) => {
      const at = place(u, event.offsetX);
      const [since, until] = [data.at[at], data.at[at] + data.step].map((each) => new Date(each * 1000).toISOString().replace(".000", ""));
      location.assign(`${region.dataset.list}?${new URLSearchParams({ q: `${node.dataset.since}:${since} ${node.dataset.until}:${until}` })}`);
    });
    return u;
  };

  const outcomes = (node, x, y) => {
    const figure = node.closest("figure");
    const done = looks(figure, "ok");
    const below = STACK.map((_, at) => data.at.map((_, i) => STACK.slice(at).reduce((sum, column) => sum + data[column][i], 0) || null));
    const bars = STACK.map((column) => ({ ...looks(figure, column), width: 1, points: { show: false }, paths: uPlot.paths.bars({ align: 1, size: [0.8, 40] }) }));
    const line = { stroke: done.stroke, fill: faint(done.fill), width: 1.5, points: { show: false }, isStep: true, paths: uPlot.paths.stepped({ align: 1 }) };
    return [
      one(node, 116, [line], [data.ok], [{ ...x, show: false }, y], true),
      one(node, 90, bars, below, [x, y], false),
    ];
  };

  const waits = (node, x, y) => {
    const figure = node.closest("figure");
    const [oldest, p95] = [looks(figure, "oldest"), looks(figure, "p95")];
    const limit = own(figure.querySelector("[data-limit]"), "backgroundColor", "::before");
    const line = (column) => ({ width: 1.5, points: { show: data[column].filter((each) => each !== null).length < 3 } });
    const series = [{ ...line("oldest"), stroke: oldest.stroke, fill: faint(oldest.fill) }, { ...line("p95"), stroke: p95.stroke }, { stroke: limit, dash: [4, 3], width: 1, points: { show: false } }];
    const reach = Math.max(1, ...data.oldest, ...data.p95);
    // The limit is drawn where it is near: an axis up to it would make a healthy queue a flat line.
    const rule = data.at.map(() => (reach * 2 > data.limit ? data.limit : null));
    return [one(node, 206, series, [data.oldest, data.p95, rule], [x, { ...y, incrs: SPANS, values: (_, marks) => marks.map(spell) }], true)];
  };

  const draw = () => {
    for (const chart of drawn) chart.destroy();
    data = JSON.parse(region.dataset.series);
    const axis = { stroke: ink("dim"), grid: { stroke: ink("hairline"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const x = { ...axis, grid: { show: false }, space: 90, size: 28, values: (_, marks) => marks.map(clock) };
    const y = { ...axis, size: 52, space: 30, incrs: COUNTS, values: (_, marks) => marks.map(compact) };
    drawn = [...region.querySelectorAll("[data-chart]")].flatMap((node) => (node.dataset.chart === "waits" ? waits : outcomes)(node, x, y));
  };

  draw();
  document.addEventListener("outlast:series", draw);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

const compact = (count) => (count < 1e4 ? count.toLocaleString("en") : `${count / 1e3}k`);

// As the server writes spans: two units at most.
export function spell(seconds) {
  const ms = Math.round(seconds * 1000);
  if (ms === 0) return "0";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
  for (const [unit, name, smaller, short] of [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]) {
    if (ms < unit * 1000) continue;
    const rest = Math.floor((Math.floor(ms / 1000) % unit) / smaller);
    return `${Math.floor(ms / 1000 / unit)} ${name}${rest ? ` ${rest} ${short}` : ""}`;
  }
  return `${Math.floor(ms / 1000)} s`;
}
