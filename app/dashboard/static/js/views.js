// Searches kept in this browser, beside those that everybody has: saved under their own words, and taken back alike.

const STORE = "outlast.views";
const MOST = 12;

export function views() {
  const nav = document.querySelector(".views");
  const button = document.querySelector("[data-do=save]");
  const here = document.querySelector(".find [type=hidden][name=q]")?.value ?? "";
  if (!nav || !button) return;
  const given = [...nav.querySelectorAll("a")].map((link) => new URL(link.href).searchParams.get("q"));

  const kept = () => {
    try {
      const found = JSON.parse(localStorage.getItem(STORE) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string").slice(0, MOST) : [];
    } catch {
      return [];
    }
  };
  const show = () => {
    for (const link of nav.querySelectorAll("[data-own]")) link.remove();
    for (const text of kept()) {
      const link = document.createElement("a");
      link.href = `${location.pathname}?${new URLSearchParams({ q: text })}`;
      link.textContent = text;
      link.dataset.own = "";
      if (text === here) link.setAttribute("aria-current", "true");
      nav.append(link);
    }
    button.hidden = !here || given.includes(here);
    button.textContent = kept().includes(here) ? "Forget view" : "Save view";
  };
  button.addEventListener("click", () => {
    const all = kept();
    const next = all.includes(here) ? all.filter((each) => each !== here) : [here, ...all].slice(0, MOST);
    localStorage.setItem(STORE, JSON.stringify(next));
    show();
  });
  show();
}
