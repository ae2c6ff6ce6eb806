// Copying and wrapping code, saying a mark of the timeline in its line, sending a form once, and a message that goes by itself.

const AGAIN = 10_000; // milliseconds until a form that led nowhere may be sent again

export function tools() {
  const offer = () => {
    for (const button of document.querySelectorAll(".codebar [data-do]")) button.hidden = false;
  };
  offer();
  document.addEventListener("htmx:after:swap", offer);
  document.addEventListener("click", (event) => {
    const asks = event.target.closest("[data-confirm]");
    if (asks && !confirm(asks.dataset.confirm)) event.preventDefault();
    const button = event.target.closest("[data-do=copy],[data-do=wrap]");
    if (!button) return;
    const code = button.closest(".code").querySelector("pre");
    if (button.dataset.do === "wrap") code.classList.toggle("wrap");
    else copy(code.textContent, button);
  });
  const sent = new Map();
  // The second click of two finds the page still here, for as long as the answer takes.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (performance.now() - (sent.get(event.target) ?? -AGAIN) < AGAIN) event.preventDefault();
    else sent.set(event.target, performance.now());
  });
  addEventListener("pageshow", () => sent.clear());
  const tell = (event) => {
    const title = event.target.closest?.(".wf a")?.querySelector("title");
    const line = document.getElementById("readout");
    if (title && line) line.textContent = title.textContent;
  };
  document.addEventListener("focusin", tell);
  document.addEventListener("pointerover", tell);
  const toast = document.querySelector(".toast");
  if (toast) leave(toast);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // plain http has no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.lastChild.textContent = "Copied";
  setTimeout(() => { button.lastChild.textContent = "Copy"; }, 2000);
}

function leave(toast) {
  let left = 6;
  const tick = setInterval(() => {
    if (toast.matches(":hover,:focus-within")) return;
    left -= 1;
    if (left > 0) return;
    clearInterval(tick);
    toast.remove();
  }, 1000);
  const address = new URL(location.href);
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
