// Every key does what a visible control does. Off while typing, and where the sheet says so.

const STORE = "outlast.keys";
const PAGES = { o: "/", j: "/jobs", q: "/queues", s: "/schedules", d: "/dead", w: "/workers" };

export function keys(selection) {
  const base = document.body.dataset.base;
  const on = document.getElementById("keys-on");
  let began = 0;

  on.checked = localStorage.getItem(STORE) !== "off";
  on.addEventListener("change", () => localStorage.setItem(STORE, on.checked ? "on" : "off"));

  const rows = () => [...document.querySelectorAll(".rows > tbody > tr")];
  const current = () => document.querySelector(".rows .cur");
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(current());
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    current()?.classList.remove("cur");
    next.classList.add("cur");
    next.querySelector("th a")?.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  const doing = {
    "/": () => document.getElementById("search")?.focus(),
    "?": () => document.getElementById("keys").showModal(),
    r: () => document.dispatchEvent(new Event("outlast:pause")),
    t: () => nextTheme(),
    j: () => move(1),
    k: () => move(-1),
    x: () => current()?.querySelector("input[name=id]")?.click(),
    X: () => selection.range(current()?.querySelector("input[name=id]")),
    a: () => selection.page(),
    Escape: () => selection.clear(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.matches("input:not([type=checkbox]),textarea,select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") || (!on.checked && event.key !== "?")) return;
    if (began && Date.now() - began < 1500 && event.key in PAGES) {
      location.assign(base + PAGES[event.key]);
      return;
    }
    began = event.key === "g" ? Date.now() : 0;
    const act = doing[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function nextTheme() {
  const all = [...document.querySelectorAll("#theme [name=theme]")];
  const at = all.findIndex((button) => button.getAttribute("aria-pressed") === "true");
  all[(at + 1) % all.length]?.click();
}
