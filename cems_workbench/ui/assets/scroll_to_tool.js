/* Moves the page to the tools, and again while the page grows below them, until the reader does something. */
{
  const move = () => document.getElementById('what-happened')?.scrollIntoView({block: 'start'});
  const watch = new ResizeObserver(move), stop = () => watch.disconnect();
  requestAnimationFrame(move);
  watch.observe(document.querySelector('[data-testid="stMainBlockContainer"]'));
  for (const name of ['wheel', 'pointerdown', 'keydown', 'touchstart']) addEventListener(name, stop, {once: true, capture: true, passive: true});
  setTimeout(stop, 8000);
}
