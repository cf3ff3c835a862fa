/* Coverage: a click on a row picks its turn or memory; arrow keys move between the rows of a side. The rows are those of coverage.html;
where the page draws them anew, the picked one is marked and focused again. */
let pick = () => {}, picked = '', at = '';  // the picked row, and the row that the keyboard is on
const rowOf = id => (id ? document.querySelector(`.wb-cov-row[data-pick="${CSS.escape(id)}"]`) : null);
export default function ({setTriggerValue}) {
  pick = id => { picked = id; setTriggerValue('pick', id); };
  drawLines();
}

/* A row that is drawn anew may not be visible yet, and then takes no focus: it is tried again. */
function refocus(tries = 60) {
  const row = document.activeElement === document.body && rowOf(at);
  if (!row) return;
  row.focus();
  if (document.activeElement !== row && tries) requestAnimationFrame(() => refocus(tries - 1));
}

/* The page's HTML may have no SVG: the lines of a band are made here, of "class left right;…", in pixels. */
function drawLines() {
  rowOf(picked)?.setAttribute('aria-pressed', 'true');  // also where the page has drawn the rows anew
  refocus();
  for (const place of document.querySelectorAll('.wb-cov-lines:empty')) {
    const make = (name, values) => {
      const element = document.createElementNS('http://www.w3.org/2000/svg', name);
      for (const [key, value] of Object.entries(values)) element.setAttribute(key, value);
      return element;
    };
    const high = parseFloat(place.parentElement.style.height);
    const svg = make('svg', {height: high, viewBox: `0 0 100 ${high}`, preserveAspectRatio: 'none', 'aria-hidden': true});
    for (const line of place.dataset.lines.split(';').filter(Boolean)) {
      const [, kind, y1, y2] = /^(.*) (\d+) (\d+)$/.exec(line);
      svg.append(make('line', {class: kind, x1: 0, x2: 100, y1, y2}));
    }
    place.append(svg);
  }
}
if (!window.wbCoverage) {
  window.wbCoverage = true;
  new MutationObserver(drawLines).observe(document.body, {childList: true, subtree: true});
  document.addEventListener('click', event => {
    const row = event.target.closest?.('.wb-cov-row');
    if (!row) return;
    for (const other of document.querySelectorAll('.wb-cov-row[aria-pressed]')) other.removeAttribute('aria-pressed');
    row.setAttribute('aria-pressed', 'true');
    window.wbCoveragePick(row.dataset.pick);
  });
  document.addEventListener('pointerdown', event => { if (!event.target.closest?.('.wb-cov-row')) at = ''; });
  document.addEventListener('focusin', event => { at = event.target.closest?.('.wb-cov-row')?.dataset.pick ?? ''; });
  document.addEventListener('keydown', event => {
    const row = event.target.closest?.('.wb-cov-row'), step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!row || !step) return;
    const column = [...row.closest('.wb-cov').querySelectorAll('.wb-cov-row')].filter(one => one.dataset.pick[0] === row.dataset.pick[0]);
    column[column.indexOf(row) + step]?.focus();
    event.preventDefault();
  });
}
window.wbCoveragePick = id => pick(id);
