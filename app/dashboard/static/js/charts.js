// The two charts of the overview, on one axis of time. Colours are those of the legend; gaps stay gaps.

const HEIGHT = 150;
const HOUR = 3600;
const hour = (at) => [Math.min(at[0] ?? 0, (at.at(-1) ?? 0) - HOUR), at.at(-1) ?? 0];
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

export function charts() {
  const region = document.getElementById("charts");
  if (!region || !window.uPlot) return;
  let drawn = [];

  const colour = (item) => getComputedStyle(item, "::before").backgroundColor;
  const ink = (name) => {
    const probe = document.createElement("i");
    probe.className = name;
    region.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  const draw = () => {
    for (const chart of drawn) chart.destroy();
    const data = JSON.parse(region.dataset.series);
    const axis = { stroke: ink("dim"), grid: { stroke: ink("hairline"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    drawn = [...region.querySelectorAll("[data-chart]")].map((place) => {
      const figure = place.closest("figure");
      const lines = [...figure.querySelectorAll("[data-line]")];
      const limit = figure.querySelector(".key [data-s=dead]");
      const series = lines.map((item) => ({ label: item.dataset.line, stroke: colour(item), width: 1.5, points: { show: data.at.length < 3 } }));
      const values = lines.map((item) => data[item.dataset.line]);
      if (limit) {
        series.push({ label: "limit", stroke: colour(limit), dash: [4, 3], width: 1, points: { show: false } });
        values.push(data.at.map(() => data.limit));
      }
      return new window.uPlot(
        {
          width: Math.max(200, place.clientWidth),
          height: HEIGHT,
          legend: { show: false },
          cursor: { sync: { key: "overview" }, drag: { x: false, y: false } },
          scales: { x: { range: () => hour(data.at) }, y: { range: (_, low, high) => [0, Math.max(1, high ?? 1)] } },
          axes: [{ ...axis, space: 90, values: (_, marks) => marks.map(clock) }, { ...axis, size: 44 }],
          series: [{}, ...series],
        },
        [data.at, ...values],
        place,
      );
    });
  };

  draw();
  document.addEventListener("outlast:series", draw);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
