// Seconds left of a drain count down between two looks, also on a page that is paused; not on one nobody sees.

export function tick() {
  const known = new WeakMap();
  const step = () => {
    if (document.hidden) return;
    for (const timer of document.querySelectorAll("[data-left]")) {
      const given = timer.dataset.left;
      let from = known.get(timer);
      if (from?.given !== given) known.set(timer, (from = { given, at: performance.now() }));
      const left = Math.max(0, given - (performance.now() - from.at));
      timer.querySelector("b").textContent = (left / 1000).toFixed(1);
    }
  };
  setInterval(step, 100);
}
