// Selected rows: how many, a range with shift, the whole page, and the bar that acts on them.

export function pick() {
  const form = document.getElementById("select");
  const nothing = { count: () => 0, page: () => {}, clear: () => {}, range: () => {} };
  if (!form) return nothing;
  const bar = form.querySelector(".bulk");
  const note = document.getElementById("pickbar");
  if (!bar) return nothing;
  const boxes = () => [...form.querySelectorAll("input[name=id]")];
  const matching = document.getElementById("matching");
  let last = null;

  const count = () => boxes().filter((box) => box.checked).length;
  const show = () => {
    const picked = count();
    const all = matching?.checked;
    bar.hidden = !picked && !all;
    bar.querySelector("[data-count]").textContent = all ? "All matching" : `${picked} selected`;
    if (note) {
      note.hidden = bar.hidden;
      note.querySelector("[data-picked]").textContent = picked === boxes().length ? `All ${picked} on this page are selected.` : `${picked} selected.`;
    }
    const states = boxes().filter((box) => box.checked).map((box) => box.closest("tr").querySelector(".st").dataset.s);
    for (const button of bar.querySelectorAll("[data-on]")) {
      const on = button.dataset.on.split(" ");
      button.dataset.label ??= button.textContent.replace("…", "");
      const applies = all ? "" : ` ${states.filter((state) => on.includes(state)).length}`;
      button.textContent = `${button.dataset.label}${applies}…`;
    }
    for (const box of boxes()) box.closest("tr").setAttribute("aria-selected", box.checked ? "true" : "false");
    const page = document.getElementById("pick-page");
    if (page) {
      page.hidden = false;
      page.checked = picked > 0 && picked === boxes().length;
      page.indeterminate = picked > 0 && !page.checked;
    }
    document.dispatchEvent(new Event("outlast:picked"));
  };
  const set = (on) => {
    for (const box of boxes()) box.checked = on;
    if (!on && matching) matching.checked = false;
    show();
  };

  const upTo = (box) => {
    const all = boxes();
    if (!last || !all.includes(last)) return;
    const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
    for (const each of all.slice(from, to + 1)) each.checked = box.checked;
  };
  form.addEventListener("click", (event) => {
    const box = event.target.closest("input[name=id]");
    if (!box) return;
    if (event.shiftKey) upTo(box);
    last = box;
  });
  form.addEventListener("change", (event) => {
    if (event.target.id === "pick-page") set(event.target.checked);
    else show();
  });
  const clear = bar.querySelector("[data-do=clear]");
  clear.hidden = false;
  clear.addEventListener("click", () => set(false));
  show();
  return {
    count: () => count() + (matching?.checked ? 1 : 0),
    page: () => (count() === boxes().length && matching ? (matching.click()) : set(true)),
    clear: () => set(false),
    range: (box) => {
      if (!box) return;
      box.checked = true;
      upTo(box);
      last = box;
      show();
    },
  };
}
