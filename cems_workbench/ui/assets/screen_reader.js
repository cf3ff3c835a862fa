/* Announces changes to screen readers: page announcements and job progress. Streamlit replaces an element when its text changes, and
screen readers ignore a live region that is inserted with its text; so one permanent region receives copies of the texts. Progress
changes many times a second: it is announced when it starts and then every few seconds. */
(() => {
  if (window.wbScreenReader) return;
  window.wbScreenReader = true;
  const SETTLED = 300, PROGRESS = 8000;
  const region = document.createElement('div');
  region.className = 'wb-sr-only wb-live';
  region.setAttribute('role', 'status');
  region.setAttribute('aria-live', 'polite');
  document.body.append(region);
  const texts = selector => [...document.querySelectorAll(selector)].map(at => at.textContent.trim()).filter(Boolean).join(' ');
  let announced = '', progress = '', announcedAt = -PROGRESS, waiting = 0;
  function look() {
    waiting = 0;
    const news = texts('.wb-announced'), work = texts('[data-testid="stProgress"]');
    if (!work && progress) {  // the job ended: whoever reads the region later must not find it at work
      if (region.textContent === progress) region.textContent = '';
      progress = '';
    }
    if (news !== announced) { announced = news; if (news) region.textContent = news; }
    else if (work && work !== progress && performance.now() - announcedAt >= PROGRESS) {
      announcedAt = performance.now();
      region.textContent = progress = work;
    }
  }
  new MutationObserver(changes => {
    if (waiting || changes.every(change => region.contains(change.target))) return;
    waiting = setTimeout(look, SETTLED);
  }).observe(document.body, {childList: true, subtree: true, characterData: true});
  look();
})();
