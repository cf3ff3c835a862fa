/* Reads aloud what is new: what a page announces, and how far long work is. Streamlit replaces an element whose text changes, and a
region that comes with its text is not read; so one region stays in the window, and texts are copied into it. Progress moves many times
a second: it is read when it begins and then every few seconds. */
(() => {
  if (window.wbHeard) return;
  window.wbHeard = true;
  const SETTLED = 300, PROGRESS = 8000;
  const region = document.createElement('div');
  region.className = 'wb-heard wb-live';
  region.setAttribute('role', 'status');
  region.setAttribute('aria-live', 'polite');
  document.body.append(region);
  const texts = selector => [...document.querySelectorAll(selector)].map(at => at.textContent.trim()).filter(Boolean).join(' ');
  let announced = '', progress = '', told = -PROGRESS, waiting = 0;
  function look() {
    waiting = 0;
    const news = texts('.wb-announced'), work = texts('[data-testid="stProgress"]');
    if (news !== announced) { announced = news; if (news) region.textContent = news; }
    else if (work !== progress && performance.now() - told >= PROGRESS) {
      progress = work;
      if (work) { told = performance.now(); region.textContent = work; }
    }
  }
  new MutationObserver(changes => {
    if (waiting || changes.every(change => region.contains(change.target))) return;
    waiting = setTimeout(look, SETTLED);
  }).observe(document.body, {childList: true, subtree: true, characterData: true});
  look();
})();
