// Looks again when the stream says so, and changes regions in place. Rows are neither inserted nor moved under a reader:
// new ones wait behind the live button, and one that no longer matches is greyed until then.

const STORE = "outlast.paused";
const PATIENCE = 8000; // ms for an answer, and between two looks when the stream says nothing
const within = (work, ms) => Promise.race([work, new Promise((done) => setTimeout(done, ms))]);

export function live(selection) {
  const button = document.querySelector("[data-do=live]");
  const stream = document.body.dataset.stream;
  if (!button || !stream) return;
  button.hidden = false;
  let paused = sessionStorage.getItem(STORE) === location.pathname;
  let waiting = 0;
  let etag = "";
  let busy = false;
  let lost = 0; // when the page went stale, else 0
  const banner = document.getElementById("stale");

  const stale = (why) => {
    lost ||= Date.now();
    if (banner) {
      banner.querySelector("[data-why]").textContent = why;
      banner.querySelector("time").textContent = new Date(lost).toLocaleTimeString();
    }
    say();
  };
  const say = () => {
    const state = lost ? "lost" : paused || selection.count() ? "paused" : "on";
    const news = waiting ? `, ${waiting} change${waiting === 1 ? "" : "s"}` : "";
    if (banner) banner.hidden = !lost;
    button.dataset.live = state;
    button.textContent = { lost: "Reconnecting", paused: "Paused", on: "Live" }[state] + (lost ? "" : news);
    button.title = state === "on" ? "Live. Press r to pause" : "Press r to resume";
  };

  const read = async (all, peek) => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const headers = { "HX-Request": "true" };
      if (etag && !all) headers["If-None-Match"] = etag;
      const answer = await fetch(location.href, { headers, credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
      if (answer.status === 200) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (peek) count(fresh);
        else {
          etag = answer.headers.get("etag") ?? "";
          await apply(fresh, all);
        }
      }
      if (answer.ok || answer.status === 304) lost = 0;
      else stale(answer.status === 401 ? "You are signed out." : `The service answers ${answer.status}.`);
    } catch {
      stale("The service does not answer.");
    } finally {
      busy = false;
      say();
    }
  };

  const apply = async (fresh, all) => {
    waiting = 0;
    for (const region of document.querySelectorAll("[data-region]")) {
      const next = fresh.getElementById(region.id);
      if (!next) continue;
      if (region.dataset.region === "series") {
        region.dataset.series = next.dataset.series;
        const said = next.querySelectorAll(".key b");
        for (const [at, figure] of region.querySelectorAll(".key b").entries()) figure.dataset.rest = figure.textContent = said[at]?.textContent;
        document.dispatchEvent(new Event("outlast:series"));
        continue;
      }
      if (region.dataset.region === "rows" && !all) keepRows(region, next);
      if (region.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]),textarea,select")) continue;
      if (!region.isEqualNode(next)) await within(htmx.swap({ sourceElement: region, target: region, text: next.outerHTML, swap: "outerMorph" }), 2000);
    }
  };

  // Says how many rows have changed, while the page stands still.
  const count = (fresh) => {
    const next = fresh.querySelector("[data-region=rows] tbody");
    const old = document.querySelector("[data-region=rows] tbody");
    if (!next || !old) return;
    const known = new Map([...old.rows].map((row) => [row.id, row.dataset.v]));
    const changed = [...next.rows].filter((row) => known.get(row.id) !== row.dataset.v).length;
    waiting = changed + [...known.keys()].filter((id) => !fresh.getElementById(id)).length;
  };

  // Makes the new table one with the rows of the old in their order.
  const keepRows = (region, next) => {
    const body = next.querySelector("tbody");
    const old = region.querySelector("tbody");
    if (!body || !old) return;
    const found = new Map([...body.rows].map((row) => [row.id, row]));
    const kept = [...old.rows].map((row) => {
      const now = found.get(row.id);
      found.delete(row.id);
      const shown = now ?? row.cloneNode(true);
      shown.classList.toggle("over", !now);
      if (now && row.dataset.v !== now.dataset.v) shown.classList.add("fresh");
      if (!now) waiting += 1;
      const box = row.querySelector("input[name=id]");
      if (box?.checked) shown.querySelector("input[name=id]")?.setAttribute("checked", "");
      return shown;
    });
    waiting += found.size;
    body.replaceChildren(...kept);
  };

  const toggle = () => {
    if (waiting && !selection.count()) {
      waiting = 0;
      paused = false;
      read(true);
    } else {
      paused = !paused;
      if (!paused) read(false);
    }
    sessionStorage.setItem(STORE, paused ? location.pathname : "");
    say();
  };

  let lookedAt = Date.now();
  const look = () => {
    lookedAt = Date.now();
    read(false, paused || selection.count() > 0);
  };
  document.body.addEventListener("jobs-changed", look);
  document.body.addEventListener("job-changed", look);
  document.body.addEventListener("draining", () => stale("This process is draining, moving on."));
  // Whether what is seen is old says the next look, not the stream: without one the page looks by itself.
  document.body.addEventListener("htmx:sse:after:connection", look);
  document.body.addEventListener("htmx:sse:error", look);
  banner?.querySelector("button").addEventListener("click", look);
  // Only extensions hear of nodes: no event is fired for one.
  htmx.registerExtension("kept", {
    htmx_before_morph_node: (_, { oldNode, newNode }) => {
      if (oldNode instanceof HTMLDetailsElement) newNode.open = oldNode.open;
      if (oldNode instanceof Element && oldNode.classList.contains("cur")) newNode.classList?.add("cur");
    },
  });
  setInterval(() => { if (Date.now() - lookedAt > (lost ? PATIENCE / 2 : PATIENCE)) look(); }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  document.addEventListener("outlast:picked", say);
  document.addEventListener("outlast:pause", toggle);
  button.addEventListener("click", toggle);
  say();
  // Only now: htmx may have looked at the page before the extension for streams was there.
  document.body.setAttribute("hx-swap", "none");
  document.body.setAttribute("hx-sse:connect", stream);
  htmx.process(document.body);
}
