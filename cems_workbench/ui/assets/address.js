/* Which changes of the address make an entry of the browser's history, that is, what Back goes to: another page, or another value of the
parts that the page says make one (`entry` in ui/kit/address.py). A moved slider, a filter, or what a page adds to its address once it is drawn replaces the present entry.

Streamlit makes an entry for every change that the server sends; only the browser knows what its entry has. */
(() => {
  if (window.wbAddress) return;
  window.wbAddress = true;
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let arrived = true;  // the page was just opened, and nobody has used it yet
  for (const kind of ['keydown', 'pointerdown']) addEventListener(kind, () => { arrived = false; }, true);
  addEventListener('popstate', () => { arrived = true; }, true);
  const shown = address => JSON.stringify(wbSettings.entries.map(name => address.searchParams.getAll(name)));
  history.pushState = (state, title, url) => {
    const now = new URL(location), next = new URL(url, location), another = now.pathname !== next.pathname;
    (another || (!arrived && shown(now) !== shown(next)) ? push : replace)(state, title, url);
    if (another) arrived = true;
  };
})();
